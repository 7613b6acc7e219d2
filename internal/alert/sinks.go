package alert

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Webhook posts JSON as Standard Webhooks has it. With a Secret each message is signed.
type Webhook struct {
	URL    string
	Secret Value // nil: not signed; the whole text, or "whsec_" and base64
}

var _ Sink = Webhook{}

// webhookBody is the body of a webhook.
type webhookBody struct {
	Type string      `json:"type"` // weir.alert, weir.alerts
	Time time.Time   `json:"timestamp"`
	Data webhookData `json:"data"`
}

type webhookData struct {
	Weir string `json:"weir"`
	*Alert
	Count   int     `json:"count,omitempty"` // of a sum
	Summary string  `json:"summary,omitempty"`
	Alerts  []brief `json:"alerts,omitempty"` // of a sum: as many as fit
}

// brief is an alert in a sum.
type brief struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Subject  string    `json:"subject"`
	State    string    `json:"state"`
	Severity string    `json:"severity"`
	Time     time.Time `json:"time"`
}

// Habits says that a webhook gets each alert once, by itself.
func (Webhook) Habits() Habits { return Habits{} }

// Write writes the body and signs it.
func (w Webhook) Write(m *Message) (*Call, error) {
	b := webhookBody{Type: "weir.alert", Time: m.Time.UTC(), Data: webhookData{Weir: m.Weir}}
	if m.Sum {
		b.Type, b.Data.Count, b.Data.Summary = "weir.alerts", len(m.Alerts), m.title()+": "+m.counts()
		for i := range m.Alerts {
			a := &m.Alerts[i]
			b.Data.Alerts = append(b.Data.Alerts, brief{a.ID, a.Name, a.Subject, a.State, a.Severity, a.Time.UTC()})
		}
	} else {
		b.Data.Alert, b.Data.Summary = &m.Alerts[0], m.Alerts[0].Summary
	}
	body, err := json.Marshal(b)
	for ; err == nil && len(body) > mostBody && len(b.Data.Alerts) > 0; body, err = json.Marshal(b) {
		b.Data.Alerts = b.Data.Alerts[:len(b.Data.Alerts)/2]
	}
	if err != nil {
		return nil, err
	}
	at := strconv.FormatInt(m.Time.Unix(), 10)
	h := http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {m.ID}, "Webhook-Timestamp": {at}}
	if w.Secret != nil {
		secret, err := w.Secret()
		if err != nil {
			return nil, err
		}
		key, err := signingKey(secret)
		if err != nil {
			return nil, err
		}
		h["Webhook-Signature"] = []string{signature(key, m.ID, at, body)}
	}
	return &Call{w.URL, h, body}, nil
}

// signingKey reads a secret: what follows whsec_ is base64.
func signingKey(secret string) ([]byte, error) {
	text, is := strings.CutPrefix(secret, "whsec_")
	if !is {
		return []byte(secret), nil
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("the webhook's secret begins with whsec_, but no base64 follows")
	}
	return key, nil
}

// signature signs a message as Standard Webhooks has it, version 1.
func signature(key []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Alertmanager posts to a Prometheus Alertmanager, API v2.
type Alertmanager struct {
	URL string // its base
}

var _ Sink = Alertmanager{}

// How Alertmanager is kept up to date: what is not sent again is over for it.
const (
	renewEvery = time.Minute
	renewFor   = 4 * renewEvery
)

type managed struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Starts      time.Time         `json:"startsAt"`
	Ends        time.Time         `json:"endsAt"`
}

// Habits says that what fires is sent again each minute, a few alerts at a time.
func (Alertmanager) Habits() Habits { return Habits{Batch: 4, Renew: renewEvery} }

// Write writes the list of alerts.
func (s Alertmanager) Write(m *Message) (*Call, error) {
	list := []managed{}
	for i := range m.Alerts {
		a := &m.Alerts[i]
		one := managed{
			Labels:      map[string]string{"alertname": alertName(a.Name), "severity": a.Severity, "subject": a.Subject, "weir": m.Weir},
			Annotations: map[string]string{"summary": a.Summary}, Starts: a.Since.UTC(), Ends: a.Time.UTC(),
		}
		for name, value := range map[string]string{"pool": a.Pool, "backend": a.Backend, "model": a.Model} {
			if value != "" {
				one.Labels[name] = value
			}
		}
		if a.Detail != "" {
			one.Annotations["description"] = a.Detail
		}
		if a.State == Firing {
			one.Ends = m.Time.Add(renewFor).UTC()
		}
		if one.Ends.Before(one.Starts) {
			one.Starts = one.Ends
		}
		list = append(list, one)
	}
	body, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return &Call{strings.TrimRight(s.URL, "/") + "/api/v2/alerts", http.Header{"Content-Type": {"application/json"}}, body}, nil
}

// alertName turns a name into the usual form: pool_down is WeirPoolDown.
func alertName(name string) string {
	out := "Weir"
	for _, part := range strings.FieldsFunc(name, func(r rune) bool { return r == '_' || r == ' ' || r == '-' }) {
		out += strings.ToUpper(part[:1]) + part[1:]
	}
	return out
}

// Slack posts to an incoming webhook of Slack, or of what takes the same.
type Slack struct {
	URL Value // the URL is the secret
}

var _ Sink = Slack{}

// slackText keeps names from calling people or making links.
var slackText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Habits says that Slack gets each alert once, by itself.
func (Slack) Habits() Habits { return Habits{} }

// Write writes one text.
func (s Slack) Write(m *Message) (*Call, error) {
	to, err := s.URL()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]string{"text": slackText.Replace("[" + m.severity() + "] " + m.title() + " (weir " + m.Weir + ")\n" + m.text())})
	if err != nil {
		return nil, err
	}
	return &Call{to, http.Header{"Content-Type": {"application/json"}}, body}, nil
}

// NTFY posts to a topic of an ntfy server.
type NTFY struct {
	URL   string // of the topic
	Token Value  // nil: none is sent
}

var _ Sink = NTFY{}

// Habits says that ntfy gets each alert once, by itself.
func (NTFY) Habits() Habits { return Habits{} }

// Write writes a text with a title, a priority and a tag.
func (s NTFY) Write(m *Message) (*Call, error) {
	priority, tag := map[string]string{Info: "2", Warning: "4", Critical: "5"}[m.severity()], "warning"
	if m.resolved() {
		priority, tag = "3", "white_check_mark"
	}
	h := http.Header{
		"Content-Type": {"text/plain; charset=utf-8"}, "Title": {ascii("weir " + m.Weir + ": " + m.title())}, "Priority": {priority}, "Tags": {tag},
	}
	if s.Token != nil {
		token, err := s.Token()
		if err != nil {
			return nil, err
		}
		h["Authorization"] = []string{"Bearer " + token}
	}
	return &Call{s.URL, h, []byte(m.text())}, nil
}

// ascii keeps a header to what every server reads the same.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
