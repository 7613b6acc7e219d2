package key

// Tokens is what counts of one request against the tokens per minute of its key.
type Tokens struct {
	Prompt    int64 // estimated
	Max       int64 // that the client takes as an answer; 0: it does not say
	Choices   int64 // of that length; 0 is 1
	Generates bool  // there is an answer of tokens
	In, Out   int64 // as they were used in the end; negative: unknown
	Sent      bool  // a backend may have worked on it
	Answered  bool  // and the client got its answer, or left before
}

// UsualOut is what an answer is taken to need where the client sets no limit.
const UsualOut = 1024

// Estimate is the most that the request may use, as far as that can be told before.
func (t Tokens) Estimate() int64 {
	n := min(max(t.Prompt, 0), most)
	if !t.Generates {
		return n
	}
	out := t.Max
	if out <= 0 {
		out = UsualOut
	}
	if choices := max(t.Choices, 1); out > most/choices {
		return most
	} else {
		out *= choices
	}
	return min(n+out, most)
}

// Used is what the request used in the end: what is known of it, nothing where no backend answered, and else the estimate.
func (t Tokens) Used() int64 {
	in, out := min(t.In, most), min(t.Out, most)
	switch {
	case !t.Sent:
		return 0
	case in < 0 && out < 0:
		if !t.Answered {
			return 0
		}
		return t.Estimate()
	case out < 0 && t.Generates: // broken off before anything was said of it
		return max(in, t.Estimate())
	}
	return min(max(in, 0)+max(out, 0), most)
}
