package main

import (
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// addrOf starts a server for the test and returns its address.
func addrOf(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// fullDuplex mends a race of the bare reverse proxy on several processors: the
// server closes the request's body with the first write of the answer, while the
// transport may still be looking whether that body has ended, and then cuts the answer.
func fullDuplex(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			panic(err)
		}
		h.ServeHTTP(w, r)
	})
}

func TestLoadCountsWholeAnswers(t *testing.T) {
	up := addrOf(t, newMock().handler())
	proxy := newRevproxy(up)
	t.Cleanup(proxy.Transport.(*http.Transport).CloseIdleConnections)
	gateway := addrOf(t, fullDuplex(proxy))
	for _, p := range []plan{
		{model: modelPlain, body: bodySmall},
		{model: modelPlain, body: bodyTools},
		{model: modelPlain, body: bodyBig},
		{model: "bench-7x1ms", body: bodySmall, stream: true},
	} {
		t.Run(p.body+" "+p.model, func(t *testing.T) {
			p.addr, p.connections, p.requests, p.pid = gateway, 4, 20, os.Getpid()
			got, err := load(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			chunks := int64(0)
			if p.stream {
				chunks = 7 * 20
			}
			if got.Requests != 20 || got.bad() != 0 || got.Chunks != chunks || got.Dials < 1 || got.Dials > 4 {
				t.Errorf("got %+v", got)
			}
			if got.CPURequest <= 0 || got.RSSBefore <= 0 || got.P50 <= 0 || got.P99 < got.P50 {
				t.Errorf("the run lacks figures: %+v", got)
			}
		})
	}
}

func TestLoadOnceMakesOneRequestPerConnection(t *testing.T) {
	got, err := load(t.Context(), plan{addr: addrOf(t, newMock().handler()), model: "bench-3x1ms", body: bodySmall,
		stream: true, connections: 30, once: true, ramp: 5 * time.Millisecond})
	if err != nil || got.Requests != 30 || got.Chunks != 90 || got.Dials != 30 || got.FirstP50 <= 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestLoadMeasuresByTime(t *testing.T) {
	got, err := load(t.Context(), plan{addr: addrOf(t, newMock().handler()), model: modelPlain, body: bodySmall,
		connections: 2, warm: 20 * time.Millisecond, duration: 100 * time.Millisecond})
	if err != nil || got.Requests == 0 || got.bad() != 0 || got.Seconds < 0.1 || got.Seconds > 5 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestLoadTellsFaultsApart(t *testing.T) {
	stream := func(raw []byte, end func()) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(raw)
			_ = http.NewResponseController(w).Flush()
			end()
		})
	}
	whole := wholeStream(3)
	tests := []struct {
		name    string
		handler http.Handler
		want    [3]int64 // errors, broken, short
		says    string
	}{
		{"a refusal", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such key", http.StatusUnauthorized) }), [3]int64{4, 0, 0}, "status 401: no such key"},
		{"a cut connection", stream(whole[:len(whole)/2], func() { panic(http.ErrAbortHandler) }), [3]int64{0, 4, 0}, "unexpected EOF"},
		{"a cut that looks whole", stream(whole[:len(whole)/2], func() {}), [3]int64{0, 4, 0}, "no [DONE]"},
		{"a missing chunk", stream(wholeStream(2), func() {}), [3]int64{0, 0, 4}, "2 chunks of 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := load(t.Context(), plan{addr: addrOf(t, tt.handler), model: "bench-3x0s", body: bodySmall, stream: true, connections: 1, requests: 4})
			if err != nil {
				t.Fatal(err)
			}
			if have := [3]int64{got.Errors, got.Broken, got.Short}; have != tt.want || got.Requests != 0 || !strings.Contains(got.FirstError, tt.says) {
				t.Errorf("got %v, %d whole, %q; want %v, %q", have, got.Requests, got.FirstError, tt.want, tt.says)
			}
		})
	}
}

func TestLoadGivesUpOnAGatewayThatIsNotThere(t *testing.T) {
	addr, err := freeAddr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := load(t.Context(), plan{addr: addr, model: modelPlain, body: bodySmall, connections: 4, duration: maxDuration})
	if err != nil || got.Errors <= giveUp/4 || got.Seconds > 20 {
		t.Errorf("got %+v, %v; want an early end", got, err)
	}
}

func TestPlanSurvivesItsCommandLine(t *testing.T) {
	want := plan{addr: "127.0.0.1:1234", key: "k=1", model: modelPaced, body: bodyBig, stream: true, connections: 7, once: true,
		ramp: time.Second, warm: time.Minute, duration: time.Hour, requests: 3, pid: 12, mockPID: 34}
	for _, want := range []plan{want, {assembled: true}} {
		var got plan
		fs := flag.NewFlagSet("load", flag.ContinueOnError)
		got.flags(fs)
		if err := fs.Parse(want.args()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(plan{})); diff != "" {
			t.Errorf("args %q: %s", want.args(), diff)
		}
	}
}

func TestModelNamesAreScripts(t *testing.T) {
	plain := script{chunks: defaultChunks}
	for name, want := range map[string]script{
		modelPlain: plain, "gpt-5": plain, "": plain, "bench-": plain, "bench-x": plain, "bench--1x1ms": plain, "bench-1x-1ms": plain, "bench-99999x0s": plain,
		"bench-0x0s": {}, modelPaced: {100, 50 * time.Millisecond}, modelMany: {40, 500 * time.Millisecond},
	} {
		if got := parseModel(name); got != want {
			t.Errorf("%q: got %+v, want %+v", name, got, want)
		}
	}
}

func TestBodiesHaveTheSizesOfTheReference(t *testing.T) {
	for kind, size := range map[string][2]int{bodySmall: {270, 330}, bodyTools: {11_000, 13_000}, bodyBig: {128_000, 134_000}} {
		b, err := requestBody(kind, modelPlain, false)
		if err != nil || len(b) < size[0] || len(b) > size[1] || !json.Valid(b) {
			t.Errorf("%s: %d bytes, %v; want %v", kind, len(b), err, size)
		}
	}
	if n := len(answer(modelPlain)); n < 570 || n > 630 {
		t.Errorf("the answer has %d bytes", n)
	}
	if n := len(newFrames(modelPaced).appendContent(nil, 0)); n < 230 || n > 280 {
		t.Errorf("an event has %d bytes", n)
	}
}

func TestMockSendsUsageOnlyWhenAsked(t *testing.T) {
	addr := addrOf(t, newMock().handler())
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for body, want := range map[string]bool{
		`{"model":"bench-2x0s","stream":true}`:                                              false,
		`{"model":"bench-2x0s","stream" : true,"stream_options":{"include_usage": true}}`:   true,
		`{"messages":[{"content":"\"include_usage\":true"}],"model":"bench","stream":true}`: false,
	} {
		resp, err := hc.Post("http://"+addr+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || strings.Contains(string(got), `"usage"`) != want || !strings.HasSuffix(string(got), "data: [DONE]\n\n") {
			t.Errorf("%s: %v, answer ends %q", body, err, got[max(0, len(got)-200):])
		}
	}
}

func TestMockRefusesARequestWithoutAModel(t *testing.T) {
	for _, body := range []string{"", "{}", `{"model":3}`, `{"model":"x`, `{"note":"model"}`} {
		w := httptest.NewRecorder()
		newMock().handler().ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body)))
		if w.Code != 400 || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	}
}
