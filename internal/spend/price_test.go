package spend

import (
	"math"
	"math/big"
	"testing"

	"go.uber.org/goleak"

	"weir/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// usd reads an amount; empty is nil.
func usd(text string) *config.USD {
	if text == "" {
		return nil
	}
	n, err := config.ParseUSD(text)
	if err != nil {
		panic(err)
	}
	return &n
}

// price is one of in, out, cached and written, in USD per million tokens.
func price(in, out, cached, written string) *Price {
	return NewPrice(&config.Price{In: usd(in), Out: usd(out), Cached: usd(cached), Written: usd(written)})
}

func TestCost(t *testing.T) {
	const huge = math.MaxInt64
	for _, tt := range []struct {
		name  string
		price *Price
		used  Usage
		want  int64
		known bool
	}{
		{"C152: plain, cached and written tokens are counted once each", price("3", "15", "0.30", "3.75"), Usage{In: 330, Out: 5, Cached: 300, Written: 20}, 30_000 + 75_000 + 90_000 + 75_000, true},
		{"without prices of their own they cost as in", price("3", "15", "", ""), Usage{In: 330, Out: 5, Cached: 300, Written: 20}, 330*3000 + 75_000, true},
		{"a price of zero is known", price("0", "0", "", ""), Usage{In: 9, Out: 9}, 0, true},
		{"free tokens need no number", price("0", "0", "", ""), Usage{In: -1, Out: -1}, 0, true},
		{"no price is unknown, not zero", nil, Usage{In: 1}, 0, false},
		{"neither is one without in and out", price("", "", "1", ""), Usage{In: 1, Cached: 1}, 0, false},
		{"a part without a price is unknown, and the others are certain", price("1", "", "", ""), Usage{In: 7, Out: 1}, 7000, false},
		{"unless nothing used it", price("1", "", "", ""), Usage{In: 7}, 7000, true},
		{"written ones cost as in where that is unknown too", price("", "1", "0.5", ""), Usage{In: 4, Cached: 4, Out: 1}, 3000, true},
		{"and are unknown then", price("", "1", "0.5", ""), Usage{In: 5, Cached: 4, Written: 1, Out: 1}, 3000, false},
		{"unsaid cached tokens are none", price("1", "1", "0.1", "2"), Usage{In: 10, Out: 1, Cached: -1, Written: -1}, 11_000, true},
		{"an unknown prompt is unknown", price("1", "1", "", ""), Usage{In: -1, Out: 2}, 2000, false},
		{"an unknown answer is unknown", price("1", "1", "", ""), Usage{In: 2, Out: -1}, 2000, false},
		{"more cached than there are tokens", price("1", "1", "0.1", "2"), Usage{In: 10, Cached: 11, Written: 5}, 1000, true},
		{"more cached and written than there are", price("1", "1", "0.1", "2"), Usage{In: 10, Cached: 8, Written: 5}, 800 + 4000, true},
		{"half a nano-dollar is rounded up", price("0.0000005", "0", "", ""), Usage{In: 1000, Out: 0}, 1, true},
		{"less is rounded down", price("0.000000499", "0", "", ""), Usage{In: 1000}, 0, true},
		{"the sum is rounded, not its parts", price("0.0000003", "0.0000003", "", ""), Usage{In: 1000, Out: 1000}, 1, true},
		{"S43: absurd counts are bounded and unknown", price("1", "0", "", ""), Usage{In: huge, Out: huge}, mostUsage * 1000, false},
		{"S43: absurd cached ones", price("1", "0", "0.5", ""), Usage{In: 10, Cached: huge, Written: huge}, 5000, true},
		{"S43: the least numbers", price("1", "1", "1", "1"), Usage{math.MinInt64, math.MinInt64, math.MinInt64, math.MinInt64}, 0, false},
		{"S43: a sum beyond any amount", price("999999999", "999999999", "", ""), Usage{In: mostUsage, Out: mostUsage}, math.MaxInt64, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, known := tt.price.Cost(tt.used)
			if got != tt.want || known != tt.known {
				t.Errorf("%d, %v, want %d, %v", got, known, tt.want, tt.known)
			}
		})
	}
}

func TestANegativePriceIsUnknown(t *testing.T) { // S43
	n := config.USD(-1)
	if got, known := NewPrice(&config.Price{In: &n, Out: usd("1")}).Cost(Usage{In: 5, Out: 1}); got != 1000 || known {
		t.Errorf("%d, %v", got, known)
	}
}

func TestASumOfMoreThan64Bits(t *testing.T) { // S43: its upper half alone is a million
	n := config.USD(15625 << 46)
	if got, known := NewPrice(&config.Price{In: &n}).Cost(Usage{In: 1 << 24}); got != math.MaxInt64 || !known {
		t.Errorf("%d, %v", got, known)
	}
}

func TestTheMostThatACallMayCost(t *testing.T) {
	for _, tt := range []struct {
		name  string
		price *Price
		most  Usage
		want  int64
	}{
		{"an unknown price holds nothing", nil, Usage{In: 5, Out: 5}, 0},
		{"nor does a price of zero", price("0", "0", "", ""), Usage{In: 5, Out: 5}, 0},
		{"prompt and answer", price("1", "2", "0.1", ""), Usage{In: 5, Out: 5}, 15_000},
		{"a prompt that may be written to a cache", price("1", "2", "0.1", "1.25"), Usage{In: 4, Out: 0}, 5000},
		{"what costs anything holds something", price("0.000000001", "0", "", ""), Usage{In: 1}, 1},
		{"also where nothing is known of its tokens", price("1", "1", "", ""), Usage{In: -1, Out: math.MinInt64}, 1},
		{"S43: absurd", price("1", "1", "", ""), Usage{In: math.MaxInt64, Out: math.MaxInt64}, 2 * mostUsage * 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.price.most(tt.most); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

func TestWhichPriceWins(t *testing.T) {
	in := func(text string) *config.Price { return &config.Price{In: usd(text)} }
	p := NewPrices(&config.Config{
		Pools:  map[string]*config.Pool{"own": {Price: in("1")}, "empty": {Price: &config.Price{}}, "plain": {}},
		Prices: config.Prices{Models: map[string]*config.Price{"vendor/m": in("2"), "m": in("3"), "nil": nil}},
	})
	for _, tt := range []struct {
		name, pool, model, sent string
		want                    int64 // of a million tokens; −1 unknown
	}{
		{"the pool's own", "own", "m", "vendor/m", 1e9},
		{"the id that is sent", "plain", "m", "vendor/m", 2e9},
		{"the id that steps name", "plain", "m", "other", 3e9},
		{"a pool whose price says nothing", "empty", "x", "m", 3e9},
		{"none", "plain", "x", "y", -1},
		{"one that is null", "plain", "nil", "nil", -1},
		{"a pool nobody knows", "gone", "m", "m", 3e9},
		{"a step without a model", "plain", "", "m", 3e9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, known := p.For(tt.pool, tt.model, tt.sent).Cost(Usage{In: 1e6})
			if !known {
				got = -1
			}
			if got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

// FuzzCost compares costs with those of whole numbers without bounds (S43).
func FuzzCost(f *testing.F) {
	for _, n := range []int64{0, -1, 1, 1 << 24, 1<<24 + 1, math.MaxInt64, math.MinInt64, 999_999_999_999_999_999} {
		f.Add(n, n, n, n, n, n, n, n)
		f.Add(n, int64(7), int64(3), int64(2), int64(400_000_000), int64(1_600_000_000), n, int64(-1))
		f.Add(int64(330), int64(5), int64(300), int64(20), n, n, int64(300_000_000), n)
	}
	f.Fuzz(func(t *testing.T, in, out, cached, written, pin, pout, pcached, pwritten int64) {
		p := NewPrice(&config.Price{In: optional(pin), Out: optional(pout), Cached: optional(pcached), Written: optional(pwritten)})
		u := Usage{In: in, Out: out, Cached: cached, Written: written}
		got, known := p.Cost(u)
		want, wantKnown := bigCost(u, pin, pout, pcached, pwritten)
		if got < 0 || got != want || known != wantKnown {
			t.Errorf("%d, %v, want %d, %v", got, known, want, wantKnown)
		}
		if most := p.most(u); most < got {
			t.Errorf("at most %d, but cost %d", most, got)
		}
	})
}

// optional is nil for a negative amount.
func optional(n int64) *config.USD {
	if n < 0 {
		return nil
	}
	u := config.USD(n)
	return &u
}

func bigCost(u Usage, pin, pout, pcached, pwritten int64) (int64, bool) {
	if pin < 0 && pout < 0 {
		return 0, false
	}
	if pcached < 0 {
		pcached = pin
	}
	if pwritten < 0 {
		pwritten = pin
	}
	known := true
	bound := func(n, rate int64) int64 {
		switch {
		case n >= 0 && n <= mostUsage:
			return n
		case rate != 0:
			known = false
		}
		if n < 0 {
			return 0
		}
		return mostUsage
	}
	in, out := bound(u.In, pin), bound(u.Out, pout)
	cached := min(max(0, u.Cached), in)
	written := min(max(0, u.Written), in-cached)
	sum := new(big.Int)
	for _, part := range [][2]int64{{in - cached - written, pin}, {cached, pcached}, {written, pwritten}, {out, pout}} {
		switch {
		case part[0] == 0:
		case part[1] < 0:
			known = false
		default:
			sum.Add(sum, new(big.Int).Mul(big.NewInt(part[0]), big.NewInt(part[1])))
		}
	}
	sum.Add(sum, big.NewInt(500_000))
	sum.Div(sum, big.NewInt(1_000_000))
	if !sum.IsInt64() {
		return math.MaxInt64, known
	}
	return sum.Int64(), known
}

func FuzzReaches(f *testing.F) {
	f.Add(int64(1), int64(2))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64))
	f.Add(int64(0), int64(1))
	f.Fuzz(func(t *testing.T, amount, ceiling int64) {
		amount, ceiling = max(amount, 0), max(ceiling, 1)
		var want uint64
		for _, p := range []int64{50, 80, 100} {
			a := new(big.Int).Mul(big.NewInt(amount), big.NewInt(100))
			if a.Cmp(new(big.Int).Mul(big.NewInt(ceiling), big.NewInt(p))) >= 0 {
				want = uint64(p)
			}
		}
		if got := level(amount, ceiling); got != want {
			t.Errorf("%d of %d: %d, want %d", amount, ceiling, got, want)
		}
	})
}
