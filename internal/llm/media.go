package llm

import (
	"io"
	"strings"
)

// Passes reports whether the operation's answers are nothing that Weir reads: audio, images, captions, events of their
// own. They go to the client as they come, and only a backend of the client's own dialect can give them.
func (o Op) Passes() bool { return o == Audio || o == Images }

// Form is the body of a multipart request, wherever its bytes are kept, and where the model's name stands in them. It is
// read-only and may be read by several attempts, one after the other.
type Form struct {
	From  io.ReaderAt // an error of it is a *Error
	Size  int
	Type  string // the Content-Type, with the boundary
	Model Span
}

// With returns the body with model as the model's name, and its length. All other bytes are the client's.
func (f *Form) With(model string) (body io.Reader, size int64) {
	piece := func(from, to int) io.Reader { return io.NewSectionReader(f.From, int64(from), int64(to-from)) }
	body = io.MultiReader(piece(0, f.Model.From), strings.NewReader(model), piece(f.Model.To, f.Size))
	return body, int64(f.Size - (f.Model.To - f.Model.From) + len(model))
}
