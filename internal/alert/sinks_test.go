package alert

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The values were reckoned with another program.
func TestSignatures(t *testing.T) {
	for _, tt := range []struct{ name, secret, want string }{
		{"a secret in base64", "whsec_" + base64.StdEncoding.EncodeToString([]byte("a key of weir for tests, 32 byte")), "v1,cOVlEmGKqxlGyJmWMlBFx6mDPe0odfJB/hL2O++noT4="},
		{"a secret in plain words", "plain words", "v1,TsI9VqFyoWy9ow+7Qj5l3WXXzh9XNll5PZngrh9HCpA="},
	} {
		key, err := signingKey(tt.secret)
		if got := signature(key, "al_1", "1790000000", []byte(`{"a":1}`)); err != nil || got != tt.want {
			t.Errorf("%s: %s, want %s (%v)", tt.name, got, tt.want, err)
		}
	}
	if _, err := signingKey("whsec_no base64: canary"); err == nil || strings.Contains(err.Error(), "canary") {
		t.Error(err)
	}
}

func message() *Message {
	at := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	return &Message{ID: "al_1", Weir: "wé\n1", Time: at.Add(time.Second), Alerts: []Alert{{
		ID: "al_1", Name: "denied", Subject: "backend a", State: Firing, Severity: Critical, Summary: "the account of backend <a> & kin is refused", Detail: "Look.",
		Backend: "a", Time: at, Since: at,
	}}}
}

func TestWebhookBody(t *testing.T) {
	c, err := Webhook{URL: "https://a.example.org/in", Secret: Fixed("plain words")}.Write(message())
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(c.Body, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"type": "weir.alert", "timestamp": "2026-12-01T10:00:01Z", "data": map[string]any{
		"weir": "wé\n1", "id": "al_1", "name": "denied", "subject": "backend a", "state": "firing", "severity": "critical", "backend": "a",
		"summary": "the account of backend <a> & kin is refused", "detail": "Look.", "time": "2026-12-01T10:00:00Z", "since": "2026-12-01T10:00:00Z",
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	sign := signature([]byte("plain words"), "al_1", "1796119201", c.Body)
	if d := cmp.Diff(http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {"al_1"}, "Webhook-Timestamp": {"1796119201"}, "Webhook-Signature": {sign}}, c.Header); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	m := message()
	for m.Sum = true; len(m.Alerts) < 1000; {
		m.Alerts = append(m.Alerts, m.Alerts[0])
	}
	if c, err = (Webhook{}).Write(m); err != nil || len(c.Body) > mostBody || !strings.Contains(string(c.Body), `"count":1000`) {
		t.Errorf("a sum of 1000: %v, %d bytes", err, len(c.Body))
	}
}

func TestChatAndPhone(t *testing.T) {
	over := message()
	over.Alerts[0].State, over.Alerts[0].Detail = Resolved, ""
	sum := message()
	sum.Sum, sum.Alerts = true, append(sum.Alerts, over.Alerts...)
	for _, tt := range []struct {
		name           string
		m              *Message
		slack          string
		title, text    string
		priority, tags string
	}{
		{"what fires", message(), "[critical] denied firing (weir wé\n1)\nthe account of backend &lt;a&gt; &amp; kin is refused\nLook.", "weir w? 1: denied firing", "the account of backend <a> & kin is refused\nLook.", "5", "warning"},
		{"what is over", over, "[critical] denied resolved (weir wé\n1)\nthe account of backend &lt;a&gt; &amp; kin is refused", "weir w? 1: denied resolved", "the account of backend <a> & kin is refused", "3", "white_check_mark"},
		{"a sum", sum, "[critical] and 2 more alerts (weir wé\n1)\n1 denied firing, 1 denied resolved\nEach of them: weir alert list", "weir w? 1: and 2 more alerts", "1 denied firing, 1 denied resolved\nEach of them: weir alert list", "5", "warning"},
	} {
		c, err := Slack{URL: Fixed("https://hooks.example.org/x")}.Write(tt.m)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		if err := json.Unmarshal(c.Body, &got); err != nil || c.URL != "https://hooks.example.org/x" {
			t.Error(c.URL, err)
		}
		if d := cmp.Diff(map[string]string{"text": tt.slack}, got); d != "" {
			t.Errorf("%s at Slack (-want +got):\n%s", tt.name, d)
		}
		c, err = NTFY{URL: "https://ntfy.example.org/weir", Token: Fixed("tk_1")}.Write(tt.m)
		want := http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "Title": {strings.Replace(tt.title, " 1", "?1", 1)}, "Priority": {tt.priority}, "Tags": {tt.tags}, "Authorization": {"Bearer tk_1"}}
		if d := cmp.Diff(want, c.Header); d != "" || err != nil || string(c.Body) != tt.text {
			t.Errorf("%s at ntfy: %v %q (-want +got):\n%s", tt.name, err, c.Body, d)
		}
	}
}

func TestASecretThatCannotBeReadIsAnError(t *testing.T) {
	broken := func() (string, error) { return "", errors.New("the environment variable X is not set") }
	for name, s := range map[string]Sink{"webhook": Webhook{Secret: broken}, "slack": Slack{URL: broken}, "ntfy": NTFY{Token: broken}} {
		if _, err := s.Write(message()); err == nil {
			t.Errorf("%s writes without its secret", name)
		}
	}
}

// S26: a name may lead anywhere.
func TestAddressesOfMetadataAreNotDialled(t *testing.T) {
	for addr, refused := range map[string]bool{
		"169.254.169.254:80": true, "[fe80::1%eth0]:80": true, "[::ffff:169.254.169.254]:80": true, "100.100.100.200:80": true, "[fd00:ec2::254]:80": true,
		"0.0.0.0:80": true, "224.0.0.1:80": true, "127.0.0.1:80": false, "10.0.0.5:443": false, "[2001:db8::1]:443": false,
	} {
		if err := guard("tcp", addr, nil); (err != nil) != refused {
			t.Errorf("%s: %v", addr, err)
		}
	}
	d := New(t.Context(), Options{Settings: Settings{Sinks: []Target{
		{Name: "m", Sink: Webhook{URL: "http://169.254.169.254/"}}, {Name: "f", Sink: Webhook{URL: "file:///etc/passwd"}}, {Name: "n", Sink: Slack{URL: Fixed("::canary")}},
	}}})
	got, err := d.Test(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"leads to a link-local or metadata address", "must begin with http:// or https://", "cannot be used"} {
		if got[i].OK || !strings.Contains(got[i].Err, want) || strings.Contains(got[i].Err, "canary") {
			t.Errorf("%+v, want %s", got[i], want)
		}
	}
}
