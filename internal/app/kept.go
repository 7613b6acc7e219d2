package app

import (
	"context"
	"time"

	"weir/internal/llm"
	"weir/internal/llm/responses"
	"weir/internal/server"
	"weir/internal/store"
)

// keeper keeps responses in the store.
type keeper struct{ store *store.Store }

var _ server.Keeper = keeper{}

// Input returns the items that r asks with.
func (keeper) Input(r *llm.Request) []byte { return responses.Input(r) }

// Answer finds the response that ended well.
func (keeper) Answer(piece []byte, whole bool) (id string, answer []byte, ok bool) {
	answer = piece
	if !whole {
		if answer, ok = responses.Terminal(piece); !ok {
			return "", nil, false
		}
	}
	id, _, ok = responses.Keep([]byte("[]"), answer)
	return id, answer, ok
}

// Continue returns r's body with all of k before its input.
func (keeper) Continue(r *llm.Request, k *server.Kept) ([]byte, error) {
	_, items, ok := responses.Keep(k.Input, k.Answer)
	if !ok {
		return nil, llm.Errorf(llm.Internal, "the response that this one continues was kept in a form that cannot be read; send its items in input")
	}
	return responses.Continue(r, items)
}

// Save writes a response.
func (s keeper) Save(ctx context.Context, k *server.Kept) error {
	return s.store.KeepResponse(ctx, (*store.Response)(k))
}

// Load reads a response, nil for none.
func (s keeper) Load(ctx context.Context, key, id string) (*server.Kept, error) {
	r, err := s.store.Response(ctx, key, id, time.Now())
	return (*server.Kept)(r), err
}

// Delete deletes a response.
func (s keeper) Delete(ctx context.Context, key, id string) (bool, error) {
	return s.store.DeleteResponse(ctx, key, id, time.Now())
}
