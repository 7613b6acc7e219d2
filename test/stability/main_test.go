// Package stability holds that Weir changes no byte that it need not change: every tool call of a model arrives as the model
// wrote it, every request goes on as the client wrote it, and what a backend has seen of a conversation comes again with
// the same bytes at the next turn, so that its prefix cache holds.
//
// The tests take 50 fixtures of our own. With WEIR_BFCL=FOLDER they take every entry of the Berkeley Function Calling
// Leaderboard too, as it lies in that folder: some 143,000 requests.
package stability

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
