package key

import (
	"crypto/sha256"
	"testing"
	"time"
)

// BenchmarkVerify is to cost one hash and at most 150 ns beside it, without an allocation.
func BenchmarkVerify(b *testing.B) {
	s, _, token := fixture(b, Spec{Name: "laptop"})
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Verify(token, now); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHash is the hash alone.
func BenchmarkHash(b *testing.B) {
	token := []byte("weir_aaaaaaaa_0123456789012345678901234567890123456789012")
	for b.Loop() {
		sha256.Sum256(token)
	}
}

func BenchmarkAdmit(b *testing.B) {
	s, k := &Set{}, &Key{RPM: maxRPM, Concurrent: 100, usage: &usage{}}
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		a, err := s.Admit(k, now)
		if err != nil {
			b.Fatal(err)
		}
		a.Release()
	}
}
