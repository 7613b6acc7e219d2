package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// now is the end of all periods here, in a place whose hours are not those of UTC.
var now = time.Date(2026, 11, 30, 14, 20, 0, 0, place)

var place = time.FixedZone("CET", 3600)

// hostile are names that would be markup, script, or a moving cursor (C132).
var hostile = []string{`x');alert(1)//`, `<img src=x onerror=alert(1)>`, `"><script>1</script>`, "\x1b[31mred\u202Eder", `{{.Title}}`, `</title></svg><script>alert(2)</script>`}

func open(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func write(t testing.TB, s *store.Store, requests []store.Request, facts []store.Fact) {
	t.Helper()
	for len(requests) > 0 {
		n := min(len(requests), 1000)
		if err := s.WriteRequests(t.Context(), requests[:n]); err != nil {
			t.Fatal(err)
		}
		requests = requests[n:]
	}
	if err := s.WriteFacts(t.Context(), facts); err != nil {
		t.Fatal(err)
	}
}

// row is a request that pool/model answered: at a minute of the period, with what changes it.
func row(at time.Time, pool, model string, changes ...func(*store.Request)) store.Request {
	r := store.Request{
		Time: at, Request: fmt.Sprintf("req_%d", at.UnixMicro()), Op: "chat", Route: "code", Tier: "cloud", Pool: pool, Backend: pool, Model: model, Served: model, Status: 200,
		Queue: 0, First: 300 * time.Millisecond, Total: 2 * time.Second, Overhead: 200 * time.Microsecond,
		TokensIn: 1000, TokensOut: 100, TokensCached: -1, TokensReasoning: -1, TokensWritten: -1, Cost: -1,
	}
	for _, change := range changes {
		change(&r)
	}
	if r.Attempts == "" {
		r.Attempts = attempts(pool, model, "")
	}
	return r
}

// attempts are stored attempts: triples of pool, model and kind.
func attempts(triples ...string) string {
	text := "["
	for i := 0; i < len(triples); i += 3 {
		if i > 0 {
			text += ","
		}
		kind := "null"
		if k := triples[i+2]; k != "" {
			kind = fmt.Sprintf("%q", k)
		}
		text += fmt.Sprintf(`{"pool":%q,"backend":%q,"model":%q,"tier":"cloud","kind":%s,"status":200,"at_ms":0.1,"queue_ms":0,"first_ms":1,"took_ms":2,"sent":%v}`,
			triples[i], triples[i], triples[i+1], kind, triples[i+2] != "full")
	}
	return text + "]"
}

// failed makes a row one that nobody answered.
func failed(kind, message string, status int, tried ...string) func(*store.Request) {
	return func(r *store.Request) {
		r.Kind, r.Message, r.Status, r.Attempts = kind, message, status, attempts(tried...)
		r.Tier, r.Pool, r.Backend, r.Model, r.Served, r.First = "", "", "", "", "", -1
		r.TokensIn, r.TokensOut = -1, -1
	}
}

// days fills 40 hours with so many requests: a day and a night, three tiers, outages of the GPU and of a vendor.
func days(n int) (requests []store.Request, facts []store.Fact) {
	rnd := rand.New(rand.NewPCG(7, 9))
	const length = 40 * time.Hour
	gpuOut := func(h float64) bool { return h > 11 && h < 12.7 || h > 30 && h < 30.4 }
	for i := 0; i < n; {
		h := rnd.Float64() * 40
		if busy := 0.55 + 0.45*math.Sin((h-2)/24*2*math.Pi); rnd.Float64() > busy {
			continue
		}
		i++
		at := now.Add(-length + time.Duration(h*float64(time.Hour)))
		slow := math.Exp(rnd.NormFloat64() * 0.6)
		in, out := int64(2000*math.Exp(rnd.NormFloat64())), int64(300*math.Exp(rnd.NormFloat64()))
		r := row(at, "gpu", "qwen3-30b", func(r *store.Request) {
			r.Tier, r.Total, r.First = "gpu", time.Duration(3*slow*float64(time.Second)), time.Duration(0.4*slow*float64(time.Second))
			r.TokensIn, r.TokensOut, r.Cost, r.Overhead = in, out, 0, time.Duration(150+rnd.IntN(200))*time.Microsecond
			r.Queue = time.Duration(rnd.ExpFloat64() * float64(40*time.Millisecond))
			r.Request = fmt.Sprintf("req_%020d", i)
		})
		switch pick := rnd.Float64(); {
		case pick < 0.012:
			failed([]string{"slow", "refused", "none", "full"}[rnd.IntN(4)], hostile[rnd.IntN(len(hostile))], 504, "gpu", "qwen3-30b", "slow", "vendor", hostile[1], "busy")(&r)
		case pick < 0.03:
			failed([]string{"invalid", "limited", "canceled", "unknown"}[rnd.IntN(4)], "the client's fault", 400)(&r)
		case pick < 0.35:
			r.Tier, r.Pool, r.Backend, r.Model, r.Route, r.Total, r.First, r.Cost = "floor", "helper", "cpu", "qwen3-4b", "quick", r.Total*2, r.First*2, 0
			r.Attempts = attempts("helper", "qwen3-4b", "")
		case pick < 0.5 || gpuOut(h):
			r.Tier, r.Pool, r.Backend, r.Model, r.Cost = "cloud", "vendor", "openrouter", "glm-5", in*600+out*2200
			r.Attempts, r.Reroute = attempts("gpu", "qwen3-30b", "slow", "vendor", "glm-5", ""), "fallback"
		case pick < 0.52:
			r.Pool, r.Backend, r.Model, r.Tier, r.Cost, r.Served = hostile[0], hostile[2], hostile[1], "cloud", -1, hostile[5]
			r.Attempts, r.Reroute = attempts(hostile[0], hostile[1], ""), "vendor"
		}
		requests = append(requests, r)
	}
	slices.SortFunc(requests, func(a, b store.Request) int { return a.Time.Compare(b.Time) })
	at := func(h float64) time.Time { return now.Add(-length + time.Duration(h*float64(time.Hour))) }
	health := func(h float64, event, pool, backend, reason, detail string) {
		facts = append(facts, store.Fact{Time: at(h), Event: event, Tier: "gpu", Pool: pool, To: backend, Model: "glm-5", Reason: reason, Detail: detail})
	}
	health(-3, "health", "vendor-b", "b", "ejected", "before the period")
	health(2, "health", "vendor-b", "b", "returned", "the trial passed")
	health(11, "health", "gpu", "gpu", "ejected", "live traffic failed again and again")
	health(12.7, "health", "gpu", "gpu", "returned", "the trial with a real request passed")
	health(30, "health", "gpu", "gpu", "ejected", "live traffic failed again and again")
	health(30.4, "health", "gpu", "gpu", "returned", "the trial with a real request passed")
	health(16, "alert", "vendor", "openrouter", "denied", "401: no credit")
	health(17.5, "alert", "vendor", "openrouter", "denied resolved", "the account is taken again")
	health(20, "alert", "vendor", "openrouter", "gone", "glm-5 is not there")
	health(26, "alert", "vendor", "openrouter", "gone resolved", "glm-5 answers again")
	health(36, "health", hostile[0], hostile[2], "ejected", hostile[3])
	facts = append(facts,
		store.Fact{Time: at(33), Event: "health", Pool: "helper", Reason: "out", Actor: "ana", Detail: "taken out for an upgrade"},
		store.Fact{Time: at(33), Event: "audit", Actor: "ana", To: "pool helper", Detail: "out: an upgrade"},
		store.Fact{Time: at(34), Event: "health", Pool: "helper", Reason: "in", Actor: "ana", Detail: "put back"},
		store.Fact{Time: at(5), Event: "audit", Actor: hostile[1], To: "key laptop", Detail: hostile[5]},
		store.Fact{Time: at(8), Event: "alert", Pool: "vendor-b", Reason: "merged", From: "vendor-b", To: "vendor", Detail: "3 answers in a row"},
		store.Fact{Time: at(9), Event: "shift", Reason: "shifted", To: "12", Actor: "ana", Detail: "cap of gpu 4"},
		store.Fact{Time: at(9.1), Event: "shift", Reason: "refused", Actor: "ana", Detail: "pools.gpu.cap: must be at least 1"},
		store.Fact{Time: at(9.3), Event: "shift", Reason: "shifted", From: "v12", To: "v13", Actor: "ana", Detail: hostile[2]},
		store.Fact{Time: at(28), Event: "shift", To: hostile[1], Actor: "ben"},
		store.Fact{Time: at(21), Event: "loop", Route: "code", Reason: "slowed", Detail: "key ci: the same request 9 times"},
		store.Fact{Time: at(29.9), Event: "swap", From: "qwen3-30b", To: "glm-air", Reason: "wanted"},
	)
	return requests, facts
}
