package discover

import (
	"net/url"
	"strings"
)

// Cloud is a vendor whose key stands in the environment. The key itself is never kept: the config refers to it.
type Cloud struct {
	Name string // of its backend and pool
	Env  string // the variable that holds the key
	URL  string
}

// vendor is one row of the table of keys.
type vendor struct {
	env, name, url string
	server         Kind
	elsewhere      string // a variable that, when set to another host, says the key belongs there
	prefix         string // of the vendor's model names that clients write as they are; empty means none
	example        string // what the user writes after the pool's name
}

var vendors = []vendor{
	{"OPENAI_API_KEY", "openai", "https://api.openai.com/v1", OpenAI, "OPENAI_BASE_URL", "gpt-*", "gpt-..."},
	{"OPENROUTER_API_KEY", "openrouter", "https://openrouter.ai/api/v1", OpenAI, "", "", "VENDOR/MODEL"},
	{"ANTHROPIC_API_KEY", "anthropic", "https://api.anthropic.com", anthropicServer, "ANTHROPIC_BASE_URL", "claude-*", "claude-..."},
}

// anthropicServer is the vendor's own word for server; nothing of the kind runs on loopback.
const anthropicServer Kind = "anthropic"

func vendorOf(c Cloud) vendor {
	for _, v := range vendors {
		if v.name == c.Name {
			return v
		}
	}
	return vendor{}
}

// clouds looks for the vendors' keys and tells each look.
func clouds(env func(string) string, tell func(Step)) (found []Cloud, notes []string) {
	for _, v := range vendors {
		step := Step{What: v.env}
		words := "not set"
		switch {
		case strings.TrimSpace(env(v.env)) == "":
		case v.points(env):
			words = "set, but " + v.elsewhere + " says that it is another server's key; left out"
			notes = append(notes, v.env+" is set, but so is "+v.elsewhere+", to another host: the key is not sent to "+v.name+".",
				"If it is that vendor's key, unset "+v.elsewhere+" and let Weir look again, or add a backend below.")
		default:
			step.Found = true
			words = "set: cloud pool " + v.name + ", its models are " + v.name + "/" + v.example
			found = append(found, Cloud{Name: v.name, Env: v.env, URL: v.url})
		}
		step.Line = "looking for " + v.env + " ... " + words
		tell(step)
	}
	return found, notes
}

// points tells whether the environment directs the vendor's SDK to another host. The key may then be that host's, or
// even Weir's own, and must not be shown to the vendor.
func (v vendor) points(env func(string) string) bool {
	if v.elsewhere == "" {
		return false
	}
	at := strings.TrimSpace(env(v.elsewhere))
	if at == "" {
		return false
	}
	there, err := url.Parse(at)
	here, errHere := url.Parse(v.url)
	return err != nil || errHere != nil || !strings.EqualFold(there.Host, here.Host)
}
