package main

import "weir/internal/config"

// Schema is the word that prints the JSON Schema of the config file.
type Schema struct{}

// Help shows how it is used.
func (Schema) Help() string {
	return `Editors that know YAML schemas complete and check weir.yaml with it:

  # yaml-language-server: $schema=weir.schema.json

Example:
  weir schema > weir.schema.json`
}

// Run prints the schema.
func (Schema) Run(std *Streams) error {
	_, err := std.Out.Write(config.Schema())
	return err
}
