package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var backendType = reflect.TypeFor[Backend]()

// sample is a valid file of which tests replace a part.
const sample = `listen: 127.0.0.1:8484
backends:
  floor: {url: "http://127.0.0.1:9001", tier: floor}
pools:
  small: {backend: floor, cap: 1, models: [tiny]}
routes:
  quick: {steps: [small]}
aliases:
  auto: quick
`

// TestWhatTheRulesAllow is the other side of testdata/bad: near misses that are right.
func TestWhatTheRulesAllow(t *testing.T) {
	tests := map[string]struct{ old, new string }{
		"every interface with any host":               {"listen: 127.0.0.1:8484", "listen: :8484\nhosts: [\"*\"]\ntls: {cert: c, key: k}"},
		"keys off on loopback":                        {"listen: 127.0.0.1:8484", "listen: localhost:8484\nauth: {keys: off}"},
		"both listeners on port 0":                    {"listen: 127.0.0.1:8484", "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0"},
		"IPv6 loopback":                               {"listen: 127.0.0.1:8484", "listen: \"[::1]:8484\""},
		"an address as a host name":                   {"listen: 127.0.0.1:8484", "hosts: [192.0.2.7, \"2001:db8::7\"]"},
		"a single address as a proxy":                 {"listen: 127.0.0.1:8484", "trusted_proxies: [127.0.0.1, \"::1\", 10.0.0.0/8]"},
		"a base URL with a path and version":          {"http://127.0.0.1:9001", "http://127.0.0.1:9001/llm/v1/"},
		"a private address":                           {"http://127.0.0.1:9001", "http://192.168.7.9:9001"},
		"a host name that begins with digits":         {"http://127.0.0.1:9001", "http://4gpu.lan:9001"},
		"a simulated backend":                         {"http://127.0.0.1:9001", "sim://floor"},
		"another port of the machine Weir listens on": {"http://127.0.0.1:9001", "http://127.0.0.1:8486"},
		"a model id with slashes and colons":          {"[tiny]", "[tiny, \"unsloth/Qwen3-4B:Q4_K_M\"]"},
		"a step to such a model":                      {"models: [tiny]}\nroutes:\n  quick: {steps: [small]}", "models: [a/b]}\nroutes:\n  quick: {steps: [small/a/b]}"},
		"any id":                                      {"models: [tiny]}\nroutes:\n  quick: {steps: [small]}", "models: [\"*\"]}\nroutes:\n  quick: {steps: [small/*, small/x]}"},
		"no routes and no aliases":                    {"routes:\n  quick: {steps: [small]}\naliases:\n  auto: quick\n", ""},
		"a local route on the machines you own":       {"{steps: [small]}", "{steps: [small], boundary: local}"},
		"an alias with a slash":                       {"auto: quick", "openai/gpt-5: quick"},
		"an alias for everything":                     {"auto: quick", "\"*\": quick"},
		"a byte order mark":                           {"listen:", "\ufefflisten:"},
		"Windows line ends":                           {"\n", "\r\n"},
		"ceilings over pools that have a price":       {"cap: 1", "cap: 1, price: {in: 0.1}, spend: {day: 1, month: 30}"},
		"a total over pools of your own":              {"listen: 127.0.0.1:8484", "spend: {day: 1}"},
		"prices of models that no pool serves":        {"listen: 127.0.0.1:8484", "prices: {as_of: " + daysAgo(170) + ", models: {other: {in: 1}}}"},
		"prices of today":                             {"listen: 127.0.0.1:8484", "prices: {as_of: " + daysAgo(0) + "}"},
		"a share of outside pools alone":              {"listen: 127.0.0.1:8484", "cap_share: 1/1000"},
		"a loop guard that refuses as it slows":       {"listen: 127.0.0.1:8484", "loop_guard: {slow: 5, refuse: 5}"},
		"an alias with a priority":                    {"auto: quick", "auto: {route: quick, priority: -10}"},
		"a local route to an alias' pool":             {"auto: quick", "auto: quick\n  direct: {route: small/tiny, priority: 5}"},
		"a public name that is said to be yours":      {"http://127.0.0.1:9001\"", "https://gpu.example.org\", outside: false"},
		"a public name that is said to be outside":    {"http://127.0.0.1:9001\"", "https://gpu.example.org\", outside: true"},
		"a name without a dot":                        {"http://127.0.0.1:9001", "http://gpu:9001"},
		"a name of a private network":                 {"http://127.0.0.1:9001", "http://gpu.home.arpa.:9001"},
		"a private address of IPv6":                   {"http://127.0.0.1:9001", "http://[fd12::5]:9001"},
		"an address of shared space":                  {"http://127.0.0.1:9001", "http://100.64.3.4:9001"},
		"a proxy on the way to loopback":              {"http://127.0.0.1:9001\"", "http://127.0.0.1:9001\", proxy: env"},
		"JSON, which is YAML":                         {sample, `{"backends":{"floor":{"url":"http://127.0.0.1:9001","tier":"floor"}},"pools":{"small":{"backend":"floor","cap":1,"models":["tiny"]}}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text := strings.ReplaceAll(sample, test.old, test.new)
			if text == sample {
				t.Fatal("nothing is replaced")
			}
			c, report := Parse([]byte(text), "weir.yaml")
			if err := report.Err(); err != nil || c == nil {
				t.Errorf("got\n%v", err)
			}
			if len(report.Warnings) > 0 {
				t.Errorf("warnings:\n%v", report.Warnings)
			}
		})
	}
}

func TestWhatIsWarnedAbout(t *testing.T) {
	tests := map[string]struct{ old, new, want string }{
		"a key over plain HTTP to another machine":    {`"http://127.0.0.1:9001"`, `"http://gpu.lan:9001", key: "${env:K}"`, "travels unencrypted"},
		"a key for a simulated backend":               {`"http://127.0.0.1:9001"`, `"sim://floor", key: "${env:K}"`, "needs no key"},
		"a backend that nobody uses":                  {"pools:", "  other: {url: \"http://127.0.0.1:9002\", tier: floor}\npools:", "weir.yaml:4: backends.other: no pool"},
		"a route that nobody can ask for":             {"aliases:\n  auto: quick\n", "", "routes.quick: no alias"},
		"an alias that hides a model":                 {"auto: quick", "auto: quick\n  small/tiny: quick", "hides model"},
		"the client's own name on a closed pool":      {"[small]", "[small/*]", "serves only the ids it lists"},
		"plain HTTP for other machines":               {"listen: 127.0.0.1:8484", "listen: 0.0.0.0:8484\nhosts: [a.example]", "unencrypted"},
		"a public name among your own machines":       {"http://127.0.0.1:9001", "https://gpu.example.org", "backends.floor.url: \"gpu.example.org\" is a public host, but a backend of tier floor counts as one of your own machines, so local requests go there: write outside: true"},
		"a public address among your own machines":    {"http://127.0.0.1:9001", "http://203.0.113.9:9001", "outside: true"},
		"a public address of IPv6":                    {"http://127.0.0.1:9001", "http://[2001:db8::7]:9001", "outside: true"},
		"a proxy on the way to your own machine":      {"http://127.0.0.1:9001\"", "http://gpu.lan:9001\", proxy: env", "a proxy of the environment would see"},
		"old prices":                                  {"listen: 127.0.0.1:8484", "prices: {as_of: " + daysAgo(181) + "}", "prices.as_of: these prices are 181 days old"},
		"prices of a day to come":                     {"listen: 127.0.0.1:8484", "prices: {as_of: " + daysAgo(-40) + "}", "clock is wrong"},
		"a day that costs more than the month":        {"listen: 127.0.0.1:8484", "spend: {day: 10, month: 9.5}", "spend.day: never matters: it is more than the month may cost (9.5)"},
		"the same at a pool":                          {"cap: 1", "cap: 1, price: {in: 1}, spend: {day: 10, month: 9}", "pools.small.spend.day"},
		"a total over a pool outside without price":   {"tier: floor}", "tier: cloud}\nspend: {month: 5}", "pools.small.models: what pool \"small\" spends on \"tiny\" is unknown and no ceiling holds it"},
		"a total over any id without price":           {"tier: floor}\npools:\n  small: {backend: floor, cap: 1, models: [tiny]}", "tier: cloud}\nspend: {month: 5}\npools:\n  small: {backend: floor, cap: 1, models: [tiny, \"*\"], price: {}}\nprices: {models: {}}", "\"tiny\" or \"*\" is unknown"},
		"a ceiling over models of which one has none": {"[tiny]", "[tiny, {id: b, served_as: c}, d], spend: {day: 1}}\nprices: {models: {c: {in: 1}, tiny: {out: 1}}", "spends on \"d\" is unknown"},
		"a share too small for a cap":                 {"tier: floor}", "tier: cloud}\ncap_share: 1/3", "pools.small.cap: is too small for a part of 1/3"},
		"a loop guard that is off":                    {"listen: 127.0.0.1:8484", "loop_guard: {window: 1m}", "loop_guard.window: has no effect"},
		"a loop guard that never slows":               {"listen: 127.0.0.1:8484", "loop_guard: {refuse: 3}", "loop_guard.refuse: has no effect"},
		"an open admin listener":                      {"listen: 127.0.0.1:8484", "admin: 0.0.0.0:8485\nhosts: [a.example]", "reachable from other machines"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, report := Parse([]byte(strings.ReplaceAll(sample, test.old, test.new)), "weir.yaml")
			if err := report.Err(); err != nil {
				t.Fatal(err)
			}
			if len(report.Warnings) != 1 || !strings.Contains(report.Warnings.Error(), test.want) {
				t.Errorf("got %q, want one about %q", report.Warnings.Error(), test.want)
			}
		})
	}
}

// daysAgo returns a day as prices name it.
func daysAgo(n int) string { return time.Now().UTC().AddDate(0, 0, -n).Format(time.DateOnly) }

func TestShareOfACap(t *testing.T) {
	for _, c := range []struct {
		share   string
		size    int
		outside bool
		want    int
	}{
		{"", 7, true, 7}, {"1/1", 7, true, 7}, {"1/2", 7, true, 3}, {"1/2", 1, true, 1}, {"2/3", 100000, true, 66666},
		{"1/1000", 16, true, 1}, {"1/2", 7, false, 7}, {"1/2", 0, true, 0}, {"nonsense", 7, true, 7},
	} {
		if got := (&Config{CapShare: c.share}).Share(c.size, c.outside); got != c.want {
			t.Errorf("%q of %d, outside %v: got %d, want %d", c.share, c.size, c.outside, got, c.want)
		}
	}
}

// TestEveryLaterWordIsRefusedByName keeps the promise that words of the design are never called unknown.
func TestEveryLaterWordIsRefusedByName(t *testing.T) {
	for _, word := range []struct{ old, new, path string }{
		{"pools:", "devices: {}\npools:", "devices"},
		{"cap: 1", "cap: 1, stack: x", "pools.small.stack"},
		{"cap: 1", "cap: 1, probe: {mode: free}", "pools.small.probe"},
		{"[small]", "[{use: small, want: swap}]", "routes.quick.steps[0].want"},
		{"[small]", "[small], gate: {mode: off}", "routes.quick.gate"},
		{"[small]", "[small], nudge: helper", "routes.quick.nudge"},
		{"auto: quick", "auto: {triage: {}}", "aliases.auto.triage"},
	} {
		t.Run(word.path, func(t *testing.T) {
			_, report := Parse([]byte(strings.ReplaceAll(sample, word.old, word.new)), "weir.yaml")
			i := slices.IndexFunc(report.Faults, func(f Fault) bool { return f.Path == word.path })
			if i < 0 || len(report.Faults) != 1 || !strings.Contains(report.Faults[i].Msg, "not built yet in this version") {
				t.Errorf("got %v, want one fault at %s", report.Faults, word.path)
			}
		})
	}
}
