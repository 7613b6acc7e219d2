package app

import (
	"encoding/json"
	"slices"
	"testing"

	"weir/internal/key"
	"weir/internal/sim"
)

func keySpec(boundary string) key.Spec {
	return key.Spec{Name: "bound-" + boundary, Boundary: boundary}
}

const manyModels = `
backends:
  in:  {url: "http://in.sim", tier: floor}
  out: {url: "http://out.sim", tier: cloud}
pools:
  own:    {backend: in, cap: 4, models: [small, "org/tiny:latest"]}
  vendor: {backend: out, cap: 4, models: [big, {id: old, served_as: big}, "org/huge"]}
  any:    {backend: in, cap: 4, models: ["*"]}
routes:
  mix: {steps: [vendor/big, own/small]}
  far: {steps: [vendor/big]}
  same: {steps: [any/*]}
aliases: {coder: mix, far: far, "claude-*": far, "team/a": own/small, "gpt-*": same}
`

func (r *reply) names() (list []string) {
	r.t.Helper()
	var a struct {
		Object string
		Data   []struct {
			ID, Object, OwnedBy string
			Created             int64
		}
	}
	if err := json.Unmarshal(r.body, &a); err != nil || a.Object != "list" || r.status != 200 {
		r.t.Fatalf("%d %s", r.status, r.body)
	}
	for _, m := range a.Data {
		if list = append(list, m.ID); m.Object != "model" || m.Created <= 0 {
			r.t.Errorf("model %+v", m)
		}
	}
	return list
}

// The list holds aliases and pool/model ids, those that the key may use; each can be asked for by name, slash or not.
func TestModelsOfAKey(t *testing.T) {
	g := begin(t, setup{yaml: manyModels, sims: map[string]sim.Script{"in": {}, "out": {}}})
	every := []string{"coder", "far", "own/org/tiny:latest", "own/small", "team/a", "vendor/big", "vendor/old", "vendor/org/huge"}
	for _, c := range []struct {
		name string
		spec key.Spec
		want []string
	}{
		{"all", key.Spec{Name: "all"}, every},
		{"inside alone", key.Spec{Name: "local", Boundary: key.Local}, []string{"coder", "own/org/tiny:latest", "own/small", "team/a"}},
		{"one alias", key.Spec{Name: "one", Aliases: []string{"coder"}}, []string{"coder"}},
		{"a pool", key.Spec{Name: "pool", Aliases: []string{"own/*"}}, []string{"own/org/tiny:latest", "own/small"}},
		{"nothing that exists", key.Spec{Name: "none", Aliases: []string{"nope"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			auth := []string{"Authorization", "Bearer " + g.newKey(c.spec)}
			if got := g.get("/v1/models", auth...).names(); !slices.Equal(got, c.want) {
				t.Errorf("models %v, want %v", got, c.want)
			}
			for _, name := range every {
				r := g.get("/v1/models/"+name, auth...)
				if allowed := slices.Contains(c.want, name); allowed && object(t, r.body)["id"] != name || !allowed && r.status != 404 {
					t.Errorf("%s: %d %s", name, r.status, r.body)
				}
			}
			// What is listed works; what is not listed does not.
			for _, name := range every {
				r := g.post("/v1/chat/completions", `{"model":"`+name+`","messages":[{"role":"user","content":"hi"}]}`, auth...)
				if allowed := slices.Contains(c.want, name); (r.status == 200) != allowed {
					t.Errorf("asking for %s: %d %s", name, r.status, r.body)
				}
			}
		})
	}
	for path, want := range map[string]string{"own%2Fsmall": "own/small", "own%2forg%2ftiny:latest": "own/org/tiny:latest", "own/org/tiny%3Alatest": "own/org/tiny:latest"} {
		if r := g.get("/v1/models/" + path); r.status != 200 || object(t, r.body)["id"] != want {
			t.Errorf("an escaped name %s: %d %s", path, r.status, r.body)
		}
	}
	if r := g.do(t.Context(), "HEAD", "/v1/models", nil); r.status != 200 || len(r.body) > 0 {
		t.Errorf("HEAD: %d %q", r.status, r.body)
	}
}

// Each name leads to its pool, and the backend is asked for the id that it knows.
func TestNamesLeadWhereTheyShould(t *testing.T) {
	g := begin(t, setup{yaml: manyModels, sims: map[string]sim.Script{"in": {}, "out": {}}})
	for name, want := range map[string][3]string{
		"coder": {"out", "vendor", "big"}, "team/a": {"in", "own", "small"}, "vendor/old": {"out", "vendor", "big"},
		"own/org/tiny:latest": {"in", "own", "org/tiny:latest"}, "claude-opus-9": {"out", "vendor", "big"},
		"any/whatever/it-is": {"in", "any", "whatever/it-is"}, "gpt-7": {"in", "any", "gpt-7"},
	} {
		g.forget()
		r := g.post("/v1/chat/completions", `{"model":"`+name+`","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		r.text()
		if got := r.header.Get("X-Weir-Pool"); got != want[1] {
			t.Errorf("%s: pool %s, want %s", name, got, want[1])
		}
		calls := g.sims[want[0]].Calls("")
		if len(calls) != 1 || calls[0].Model != want[2] {
			t.Errorf("%s: %s got %+v, want one call for %s", name, want[0], calls, want[2])
		}
	}
}
