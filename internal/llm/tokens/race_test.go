//go:build race

package tokens

// race says that the race detector slows everything down.
const race = true
