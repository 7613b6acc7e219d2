package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/store"
)

var svgs = regexp.MustCompile(`(?s)<svg.*?</svg>`)

// drawings makes the page and reads each of its plots: well-formed, with a title and a description, and no number that is
// none or outside the drawing.
func drawings(t *testing.T, r *Report) (page string, count int) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	for _, text := range svgs.FindAllString(b.String(), -1) {
		count++
		seen := map[string]bool{}
		for d := xml.NewDecoder(strings.NewReader(text)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			e, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			seen[e.Name.Local] = true
			for _, a := range e.Attr {
				place := strings.Contains(" x y x1 x2 y1 y2 width height ", " "+a.Name.Local+" ")
				if v, err := strconv.ParseFloat(a.Value, 64); place && (err != nil || v < 0 || v > 2000) || a.Name.Local == "d" && strings.ContainsAny(a.Value, "NI-") {
					t.Errorf("%s %s=%q", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
		if !seen["title"] || !seen["desc"] {
			t.Errorf("no title or description in %s", text)
		}
	}
	return b.String(), count
}

func TestThePage(t *testing.T) {
	s := open(t)
	requests, facts := days(3000)
	write(t, s, requests, facts)
	page, count := drawings(t, build(t, s, func(o *Options) {
		o.Since = now.Add(-40 * time.Hour)
		o.Prices = func(pool, _ string) Price { return map[string]Price{"vendor": price(600, 2200)}[pool] }
	}))
	if count != 5 {
		t.Errorf("%d plots, want requests, latency, tokens, cost and health", count)
	}
	for _, name := range hostile { // C132
		if strings.ContainsAny(name, "<>\"\x1b\u202e") && strings.Contains(page, name) {
			t.Errorf("%q is not escaped", name)
		}
	}
	for _, bad := range []string{"<script", "<img", "\x1b", "\u202e", "http:", "https:", "src=", "href=", "url(", "@import", "ZgotmplZ", "NaN", "%!"} {
		head, _, _ := strings.Cut(page, "<body>")
		if text := strings.ReplaceAll(page[len(head):], "&lt;img src=x", ""); strings.Contains(text, bad) || strings.Contains(head, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	if n := strings.Count(page, "prefers-color-scheme: dark"); n != 1 {
		t.Errorf("%d rules for the dark", n)
	}
	if !strings.Contains(page, `class="version" `) || !strings.Contains(page, ">v12</text>") {
		t.Error("no version is marked")
	}
	if n := strings.Count(page, `class="mark"`); n != 5*3 {
		t.Errorf("%d marks, want the three versions that came into force in each plot", n)
	}
	wellFormed(t, page)
}

// wellFormed reads the whole page: every element that is not void ends.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var stack []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			stack = append(stack, e.Name.Local)
		case xml.EndElement:
			if last := stack[len(stack)-1]; last != e.Name.Local {
				t.Fatalf("%s ends in %v", e.Name.Local, stack)
			}
			stack = stack[:len(stack)-1]
		}
	}
	if len(stack) > 0 {
		t.Errorf("%v do not end", stack)
	}
}

func TestPeriodsOfAllLengths(t *testing.T) {
	summer, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, length := range []time.Duration{time.Second, 5 * time.Minute, time.Hour, 7 * time.Hour, 26 * time.Hour, 40 * time.Hour, 8 * 24 * time.Hour, 30 * 24 * time.Hour, 900 * 24 * time.Hour} {
		t.Run(length.String(), func(t *testing.T) {
			until := time.Date(2026, 10, 25, 9, 7, 0, 0, summer) // the day has 25 hours
			s := open(t)
			write(t, s, []store.Request{row(until.Add(-length), "vendor", "glm-5", func(r *store.Request) { r.Cost = 1 }), row(until, "vendor", "glm-5")}, nil)
			r := build(t, s, func(o *Options) { o.Since, o.Until, o.Location = until.Add(-length), until, summer })
			if n := len(r.Timeline.Bins); n > mostBins {
				t.Errorf("%d bins", n)
			}
			var sum int64
			for _, b := range r.Timeline.Bins {
				sum += b.Requests
			}
			if sum != 2 {
				t.Errorf("%d requests are drawn, want 2", sum)
			}
			if _, n := drawings(t, r); n != 4 {
				t.Errorf("%d plots, want 4: no pool was out", n)
			}
			for _, p := range r.plots() {
				if p.Empty == "" && (len(p.X) > 2*mostTicks || len(p.Y) < 2 || len(p.Y) > 12) {
					t.Errorf("%s: %d marks of time, %d of values", p.ID, len(p.X), len(p.Y))
				}
				for i := 1; i < len(p.X); i++ {
					if p.X[i].At-p.X[i-1].At < 30 {
						t.Errorf("%s: %s and %s touch", p.ID, p.X[i-1].Label, p.X[i].Label)
					}
				}
				if p.Empty == "" && len(p.Bars) > mostBars*3 {
					t.Errorf("%s: %d bars", p.ID, len(p.Bars))
				}
			}
		})
	}
}

func TestLabels(t *testing.T) {
	for got, want := range map[string]string{
		dollars(3 * 0.2): "$0.6", dollars(0): "$0", dollars(3e-9): "$0.000000003", dollars(2000): "$2000", amount(1_500_000): "1.5M", amount(0.05): "0.05", amount(500_000): "500k",
		seconds(0.003): "3 ms", seconds(30): "30 s", seconds(0.0001): "100 µs", Nanos(999_999).String(): "$0.000999999", Nanos(1_234_567_890).String(): "$1.2346",
		Nanos(-2_000_000_000).String(): "-$2.0000", Nanos(1<<63 - 1).String(): "$9223372036.8548", Nanos(-1 << 63).String(): "-$9223372036.8548",
		Seconds(90 * time.Second).String(): "1m30s", Seconds(49 * time.Hour).String(): "2d1h", Millis(1500 * time.Microsecond).String(): "1.5ms", Millis(-1).String(): "-",
		number(-1234567): "-1,234,567", number(999): "999", clean("a\x1b[1m\u202eb\n"): `a\x1b[1m\u202eb\n`, cut("abcd", 3): "ab…",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	tiny, most, all := 0.00000001, 0.9999999, 1.0
	for f, want := range map[*float64]string{nil: "-", &tiny: "<0.01%", &most: ">99.99%", &all: "100.0%"} {
		if got := percent(f); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
