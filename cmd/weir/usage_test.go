package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store"
)

// spent makes a config file and a store with known costs.
func spent(t *testing.T) (configFile string) {
	t.Helper()
	dir := t.TempDir()
	configFile = filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(configFile, []byte(eventsConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), filepath.Join(dir, "data"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	now := time.Now()
	row := func(key, session, tag, kind string, in, cached, out, cost int64) store.Request {
		return store.Request{Time: now, Request: "req", Op: "chat", Pool: "vendor", Model: "glm", Key: key, KeyID: key + "0000000", Session: session, Tag: tag, Kind: kind,
			TokensIn: in, TokensCached: cached, TokensOut: out, TokensReasoning: -1, TokensWritten: -1, Cost: cost}
	}
	old := row("a", "s0", "", "", 1, 1, 1, 5_000_000_000)
	old.Time = now.Add(-25 * time.Hour)
	refused := store.Request{Time: now, Request: "req", Status: 401, Kind: "unauthorized", TokensIn: -1, TokensOut: -1, TokensCached: -1, TokensReasoning: -1, TokensWritten: -1, Cost: -1}
	err = st.WriteRequests(t.Context(), []store.Request{
		row("a", "s1", "ci", "", 1000, 400, 10, 750_000_001), row("a", "s1", "ci", "", 2000, -1, 20, 1), row("a", "s\x1b[31m", "", "canceled", 30, -1, 3, 250_000_000),
		row("b", "s3", "", "", 5, -1, 5, 100), row("b", "s3", "", "slow", 5, -1, -1, -1), row("c", "", "", "", 7, -1, 7, -1), refused, old,
	})
	if err != nil {
		t.Fatal(err)
	}
	return configFile
}

func weirUsage(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), append([]string{"usage"}, args...), &Streams{Out: &out, Err: &errs}); code != exitOK {
		t.Fatalf("weir usage %q: exit code %d: %s", args, code, errs.String())
	}
	return out.String()
}

func TestUsageTable(t *testing.T) {
	file := spent(t)
	for args, want := range map[string]string{
		"": `
KEY    REQUESTS  FAILED  LEFT    IN  CACHED  OUT  ESTIMATED                 COST   SHARE
a             3       0     1  3030     400   33          0               $1  100.0%
b             2       1     0    10       0    5          0  ≥ $0.0000001 (1 unpriced)    0.0%
c             1       0     0     7       0    7          0              unknown       -
-             1       1     0     0       0    0          0                   $0    0.0%
total         7       2     1  3047     400   45          0  ≥ $1 (2 unpriced)  100.0%
$0.25 of the cost is for answers whose clients left
`,
		"--by session --key a --limit 1": `
SESSION  REQUESTS  FAILED  LEFT    IN  CACHED  OUT  ESTIMATED   COST   SHARE
s1              2       0     0  3000     400   30          0  $0.75   75.0%
total           3       0     1  3030     400   33          0  $1   100.0%
1 more are in the total; --limit shows them
$0.25 of the cost is for answers whose clients left
`,
		"--key nobody": "\nno request matches\n",
	} {
		t.Run(args, func(t *testing.T) {
			got := "\n" + weirUsage(t, append(strings.Fields(args), "--config", file)...)
			if d := cmp.Diff(words(want), words(got)); d != "" {
				t.Errorf("(-want +got):\n%s\n%s", d, got)
			}
			for i, line := range strings.Split(strings.TrimSpace(got), "\n") {
				if head, _, _ := strings.Cut(strings.TrimSpace(got), "\n"); strings.HasPrefix(line, "total") && len([]rune(line)) != len(head) {
					t.Errorf("line %d is not aligned on the right:\n%s", i, got)
				}
			}
		})
	}
	if got := weirUsage(t, "--by", "session", "--config", file); strings.Contains(got, "\x1b") || !strings.Contains(got, `s\u001b[31m`) {
		t.Errorf("a terminal escape came through:\n%s", got)
	}
	if got := weirUsage(t, "--by", "day", "--since", "7d", "--limit", "1", "--config", file); !strings.Contains(got, time.Now().UTC().Format(time.DateOnly)) {
		t.Errorf("the newest day is not shown:\n%s", got)
	}
}

// words are the words of each line: how far columns are apart is of no account.
func words(s string) (lines [][]string) {
	for line := range strings.Lines(s) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

func TestUsageJSONIsExact(t *testing.T) {
	file := spent(t)
	var got struct {
		By     string
		Since  time.Time
		More   int
		Groups []usageJSON
		Total  usageJSON
	}
	text := weirUsage(t, "--json", "--config", file)
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err, text)
	}
	if got.By != "key" || time.Since(got.Since) < 24*time.Hour || got.More != 0 || len(got.Groups) != 4 || got.Groups[3].Name != nil {
		t.Errorf("%s", text)
	}
	a, c := got.Groups[0], got.Groups[2]
	if *a.Name != "a" || *a.Cost != "1.000000002" || *a.LeftCost != "0.25" || a.Unpriced != 0 || a.Tokens.In != 3030 || c.Cost != nil || c.Unpriced != 1 || c.Share != nil {
		t.Errorf("%s", text)
	}
	if *got.Total.Cost != "1.000000102" || got.Total.Unpriced != 2 || *got.Total.Share != 1 {
		t.Errorf("%s", text)
	}
}

func TestAmountsHaveSixDecimals(t *testing.T) {
	for nanos, want := range map[int64]string{
		0: "$0", 1: "$0.000000001", 999: "$0.000000999", 1_499: "$0.000001", 1_500: "$0.000002", 12_500_000: "$0.0125",
		1_000_000_000: "$1", 999_999_999: "$1", 123_456_789_123: "$123.456789",
	} {
		if got := usd(nanos); got != want {
			t.Errorf("%d: %s, want %s", nanos, got, want)
		}
	}
}
