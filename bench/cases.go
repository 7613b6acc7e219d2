package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Subjects: what is measured.
const (
	direct    = "direct"   // no gateway: the mock itself, on the gateway's core
	revproxy  = "revproxy" // the bare reverse proxy
	weir      = "weir"
	assembler = "weir-assembled" // Weir with a backend that always streams
)

// measure is one line of the table of limits.
type measure struct {
	name     string
	unit     string
	value    func(*result) float64
	limit    float64 // 0: none, the figure is only shown
	aim      float64
	relative bool // limit and aim are multiples of the reverse proxy's figure
	none     bool // limit and aim are 0 and every round must keep them
}

// benchCase is one kind of load and what is read off it.
type benchCase struct {
	name     string
	title    string
	plan     plan
	peer     *plan // what the others get where it differs from Weir's
	subject  string
	fresh    bool // a new process for each run, for the memory of one kind of load
	optional bool // only when named
	measures []measure
}

func cpuPerRequest(r *result) float64 { return r.CPURequest }
func cpuPerChunk(r *result) float64   { return r.CPUChunk }
func p50(r *result) float64           { return r.P50 }
func badStreams(r *result) float64    { return float64(r.bad()) }

// perStream is what one open stream adds to the resident set, at the peak.
func perStream(r *result) float64 { return (r.RSSPeak - r.RSSBefore) / float64(r.Connections) }

// loadCases are the runs of "bench load"; limits and aims are those of the issue.
func loadCases(duration time.Duration) []benchCase {
	closed := func(p plan) plan {
		p.duration, p.warm = duration, 400*time.Millisecond
		return p
	}
	paced := plan{model: modelPaced, body: bodySmall, stream: true, connections: 1000, once: true, ramp: 2 * time.Second}
	open, openBig, many := paced, paced, paced
	open.model, openBig.model, openBig.body = modelOpen, modelOpen, bodyBig
	many.model, many.connections, many.ramp = modelMany, 5000, 5*time.Second
	burst := closed(plan{model: modelPlain, body: bodySmall, stream: true, connections: 16})
	small := closed(plan{model: modelPlain, body: bodySmall, connections: 64})
	tools, big, one, assembled := small, small, small, small
	tools.body, tools.connections = bodyTools, 16
	big.body, big.connections = bodyBig, 16
	one.connections = 1
	assembled.assembled, assembled.connections = true, 16
	whole := func(what string) measure {
		return measure{name: "broken or short of " + what, unit: "streams", value: badStreams, none: true}
	}

	return []benchCase{
		{name: "small", title: "small request, 64 connections", plan: small,
			measures: []measure{{name: "CPU per small request, 64 connections", unit: "µs", value: cpuPerRequest, limit: 1.25, aim: 1.05, relative: true}}},
		{name: "latency", title: "small request, 1 connection", plan: one, measures: []measure{
			{name: "p50 at one connection", unit: "µs", value: p50, limit: 1.1, aim: 1.03, relative: true},
			{name: "CPU per small request, 1 connection", unit: "µs", value: cpuPerRequest, relative: true}}},
		{name: "assembled", title: "plain answer assembled from 100 chunks (others: the client streams), 16 connections", plan: assembled, peer: &burst, subject: assembler,
			measures: []measure{{name: "CPU per request assembled from 100 chunks", unit: "µs", value: cpuPerRequest, limit: 1.3, aim: 1.1, relative: true}}},
		{name: "tools", title: "20 tools (12 KB), 16 connections", plan: tools,
			measures: []measure{{name: "CPU per request with 20 tools", unit: "µs", value: cpuPerRequest, limit: 1.3, aim: 1.05, relative: true}}},
		{name: "big", title: "131 KB body, 16 connections", plan: big,
			measures: []measure{{name: "CPU per request with 131 KB", unit: "µs", value: cpuPerRequest, limit: 1.45, aim: 1.2, relative: true}}},
		{name: "paced", title: "1,000 streams of 100 chunks, 50 ms apart, usage counted", plan: paced, measures: []measure{
			{name: "CPU per chunk, 1,000 paced streams", unit: "µs", value: cpuPerChunk, limit: 1.2, aim: 1.05, relative: true}, whole("1,000 paced streams")}},
		{name: "burst", title: "streams of 100 chunks without a pause, 16 connections", plan: burst,
			measures: []measure{{name: "CPU per chunk, burst", unit: "µs", value: cpuPerChunk, limit: 1.15, aim: 1.0, relative: true}}},
		{name: "open", title: "1,000 open streams, small body, fresh process", plan: open, fresh: true,
			measures: []measure{{name: "RSS per open stream, small body", unit: "KiB", value: perStream, limit: 70, aim: 60}}},
		{name: "open-big", title: "1,000 open streams, 131 KB body, fresh process", plan: openBig, fresh: true,
			measures: []measure{{name: "RSS per open stream, 131 KB body", unit: "KiB", value: perStream, limit: 100, aim: 70}, whole("1,000 streams with 131 KB")}},
		{name: "many", title: "5,000 streams of 40 chunks, 500 ms apart, fresh process", plan: many, fresh: true, optional: true,
			measures: []measure{{name: "RSS per open stream, 5,000 streams", unit: "KiB", value: perStream}, whole("5,000 streams")}},
	}
}

// Cases that need more than one load run; they are in footprint.go.
const (
	caseStart  = "start"
	caseIdle   = "idle"
	caseGrowth = "growth"
)

// footprintMeasures are the limits of those cases; samples come ready made.
func footprintMeasures() map[string]measure {
	return map[string]measure{
		caseStart:  {name: "first proxied 200 after start", unit: "ms", limit: 40, aim: 20},
		caseIdle:   {name: "RSS idle", unit: "MiB", limit: 22, aim: 15},
		caseGrowth: {name: "RSS growth over 100,000 requests", unit: "MiB", limit: growthNoise, aim: growthNoise},
	}
}

// chooseCases resolves the -cases flag against the names there are.
func chooseCases(list string, cases []benchCase) (map[string]bool, error) {
	var names []string
	chosen := map[string]bool{}
	for _, c := range cases {
		names = append(names, c.name)
		chosen[c.name] = !c.optional
	}
	for _, name := range []string{caseStart, caseIdle, caseGrowth} {
		names = append(names, name)
		chosen[name] = true
	}
	if list == "" {
		return chosen, nil
	}
	clear(chosen)
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("unknown case %q: there are %s", name, strings.Join(names, ", "))
		}
		chosen[name] = true
	}
	return chosen, nil
}
