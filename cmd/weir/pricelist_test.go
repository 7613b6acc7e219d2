package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/config"
)

func TestAmountsAreReadDigitByDigit(t *testing.T) {
	for text, want := range map[string]string{
		"3e-06": "3", "0.000003": "3", "3E-6": "3", "2.5e-07": "0.25", "7.5e-08": "0.075", "0": "0", "0.0": "0", "0e-06": "0",
		"1e-15":                                "0.000000001",
		"1.875e-05":                            "18.75",
		`"0.0000025"`:                          "2.5",
		"3.0000000000000004e-07":               "0.3",         // what floats leave behind
		"2.9999999999999997e-07":               "0.3",         // likewise
		"1.2345678904e-07":                     "0.123456789", // a nano-dollar is the least
		"1.23456789050001e-07":                 "0.123456789",
		"1.2345678906e-07":                     "0.123456789",
		"1.234567895e-13":                      "0.000000123",
		"1.235e-13":                            "0.000000124", // 123.5 nano-dollars
		"5e-16":                                "0.000000001",
		"1e-300":                               "0.000000001", // never zero
		"1":                                    "1000000",
		"0000000000000000000000.0000030000000": "3",
		"1.0001":                               "", // absurd
		"1e3":                                  "", "9e999": "", "99999999999999999999": "",
		"-1": "", "null": "", `"free"`: "", "true": "", "[1]": "", "{}": "", "": "", "1e-9999": "", `"-3e-06"`: "", "NaN": "", "0x10": "",
	} {
		got := ""
		if u := amount(json.RawMessage(text), 6); u != nil {
			got = u.String()
		}
		if got != want {
			t.Errorf("%s USD per token: got %q per million, want %q", text, got, want)
		}
	}
	if u := amount(json.RawMessage("0.15"), 0); u == nil || *u != config.USD(150_000_000) {
		t.Errorf("per million: got %v", u)
	}
}

func TestWhoIsAskedIsToldByTheHost(t *testing.T) {
	for _, c := range []struct {
		vendor, api, host string
		want              bool
	}{
		{"openai", "", "api.openai.com", true}, {"openrouter", "", "openrouter.ai", true}, {"together_ai", "", "api.together.xyz", true},
		{"fireworks_ai", "", "api.fireworks.ai", true}, {"deepseek", "", "api.deepseek.com", true}, {"z-ai", "", "api.z.ai", true}, {"xai", "", "api.x.ai", true},
		{"groq", "", "api.groq.com", true}, {"anthropic", "", "api.openai.com", false}, {"openai", "", "127.0.0.1", false}, {"api", "", "api.vendor.example", false},
		{"", "", "api.openai.com", false}, {"odd", "llm.vendor.example", "llm.vendor.example", true}, {"com", "", "api.openai.com", false},
	} {
		if got := sells(&offer{vendor: c.vendor, host: c.api}, c.host) > 0; got != c.want {
			t.Errorf("%s at %s: got %v", c.vendor, c.host, got)
		}
	}
	azure, openai := sells(&offer{vendor: "azure"}, "mine.openai.azure.com"), sells(&offer{vendor: "openai"}, "mine.openai.azure.com")
	if azure <= openai {
		t.Errorf("Azure's host is told as OpenAI's: %d, %d", azure, openai)
	}
}

func TestPick(t *testing.T) {
	usd := func(text string) *config.USD {
		u, err := config.ParseUSD(text)
		if err != nil {
			t.Fatal(err)
		}
		return &u
	}
	one := func(name, vendor, in string) offer {
		return offer{name: name, id: name, vendor: vendor, price: config.Price{In: usd(in)}}
	}
	list := &priceList{offers: []offer{
		one("gpt", "openai", "1"), one("azure/gpt", "azure", "2"), one("openrouter/openai/gpt", "openrouter", "3"),
		one("east/same", "east", "4"), one("west/same", "west", "4"), one("maker", "maker", "5"), one("alone/only", "alone", "6"),
	}}
	for _, c := range []struct {
		name string
		want want
		from string
		err  string
	}{
		{"the very name, at its own vendor", want{id: "gpt", hosts: []string{"api.openai.com"}}, "gpt", ""},
		{"the very name, where the vendor is not known", want{id: "gpt", hosts: []string{"llm.example.org"}}, "gpt", ""},
		{"another vendor of the same name", want{id: "gpt", hosts: []string{"mine.openai.azure.com"}}, "azure/gpt", ""},
		{"behind the first slash", want{id: "openai/gpt", hosts: []string{"openrouter.ai"}}, "openrouter/openai/gpt", ""},
		{"behind the last slash", want{id: "only", hosts: []string{"llm.example.org"}}, "alone/only", ""},
		{"several at one price", want{id: "same", hosts: []string{"llm.example.org"}}, "east/same", ""},
		{"the id that stands for it", want{id: "ep-1234", names: []string{"maker"}, hosts: []string{"llm.example.org"}}, "maker", ""},
		{"two pools at two prices", want{id: "gpt", hosts: []string{"api.openai.com", "mine.openai.azure.com"}, pools: []string{"a", "b"}}, "", "the pools a, b buy it at different prices"},
		{"nobody", want{id: "no", hosts: []string{"api.openai.com"}}, "", "names no price"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := list.pick(&c.want)
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, %v", got, err)
				}
			case err != nil || got.name != c.from:
				t.Errorf("got %v, %v; want %s", got, err, c.from)
			}
		})
	}
}

func TestReadPriceListTellsTheForm(t *testing.T) {
	for name, c := range map[string]struct{ text, form, err string }{
		"LiteLLM":                {`{"a": {"input_cost_per_token": 1e-06}, "sample_spec": {"input_cost_per_token": 1}, "b": [], "c": null}`, "LiteLLM", ""},
		"models.dev":             {`{"v": {"models": {"a": {"cost": {"input": 1}}, "b": null, "c": {"cost": null}, "d": {"cost": {}}}}, "w": {"models": []}}`, "models.dev", ""},
		"no price at all":        {`{"a": {"mode": "chat"}}`, "", "in a form that is known"},
		"only the sample":        {`{"sample_spec": {"input_cost_per_token": 1e-06}}`, "", "in a form that is known"},
		"a list":                 {`[]`, "", "cannot unmarshal"},
		"nothing":                {``, "", "is not there"},
		"null":                   {`null`, "", "is null"},
		"a page of an error":     {`<html>`, "", "invalid character"},
		"something cut off half": {`{"a": {"input_cost_per`, "", "unexpected end"},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := readPriceList(strings.NewReader(c.text))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, %v", list, err)
				}
				return
			}
			if err != nil || list.form != c.form || len(list.offers) != 1 {
				t.Errorf("got %+v, %v", list, err)
			}
		})
	}
}

func FuzzReadPriceList(f *testing.F) {
	f.Add(`{"a": {"input_cost_per_token": 1e-06, "output_cost_per_token": "3e-06", "litellm_provider": "v"}, "v/a": {"input_cost_per_token": 2e-06}}`)
	f.Add(`{"v": {"api": "https://v.example", "models": {"a": {"cost": {"input": 1, "tiers": []}}}}, "w": {"models": {"a": {"cost": {"output": 2}}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := readPriceList(strings.NewReader(text))
		if err != nil {
			return
		}
		prices, _ := list.every()
		for id := range prices {
			_, _ = list.pick(&want{id: id, hosts: []string{"api.v.example"}})
		}
		for _, o := range list.offers {
			for _, u := range []*config.USD{o.price.In, o.price.Out, o.price.Cached, o.price.Written} {
				if u == nil {
					continue
				}
				if again, err := config.ParseUSD(u.String()); err != nil || again != *u {
					t.Errorf("%s: %v does not read back", o.name, u)
				}
			}
		}
		again, err := readPriceList(strings.NewReader(text))
		if err != nil || !cmp.Equal(list, again, cmp.AllowUnexported(priceList{}, offer{})) {
			t.Errorf("another list the second time: %v", err)
		}
	})
}
