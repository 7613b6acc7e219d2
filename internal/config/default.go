package config

import "time"

// defaultQueue is how many requests may wait for a pool that does not say.
const defaultQueue = 32

// Default returns the configuration that a file is decoded over: every setting that has a default, and no backends.
// What depends on a backend's server and tier is filled in by Resolve.
func Default() *Config {
	sample := 1.0
	return &Config{
		Listen: "127.0.0.1:8484",
		Admin:  "127.0.0.1:8485",
		Data:   "./data",
		Auth:   Auth{Keys: "on"},
		Server: Server{
			MaxBody:       32 << 20,
			MaxDepth:      128,
			HeaderTimeout: Duration(10 * time.Second),
			BodyTimeout:   Duration(30 * time.Second),
			IdleTimeout:   Duration(2 * time.Minute),
			WriteTimeout:  Duration(30 * time.Second),
		},
		Limits: Limits{
			FirstContent: Duration(15 * time.Second),
			Total:        Duration(time.Hour),
			Answer:       Duration(time.Minute),
			Wait:         Duration(20 * time.Second),
			SwapWait:     Duration(4 * time.Minute),
		},
		Attempts:    Attempts{Generations: 3},
		Requests:    Requests{MaxTokens: 1 << 20, Choices: 16, Tools: 1024, ToolBytes: 8 << 20, TopLogprobs: 20},
		CommitAfter: Duration(45 * time.Second),
		Drain:       Duration(30 * time.Second),
		Log:         Log{Format: "json", Level: "info"},
		Events:      Events{Keep: Duration(30 * 24 * time.Hour), MaxSize: 1 << 30},
		Traces:      Traces{GenAI: "1.41", Sample: &sample},
	}
}
