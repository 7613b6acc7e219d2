package llm

// Listed is a name that a client can ask for.
type Listed struct {
	Name    string
	OwnedBy string
}
