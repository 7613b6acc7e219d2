-- +goose Up

-- How long a key's responses are kept, in microseconds; 0 is not at all.
ALTER TABLE keys ADD COLUMN keep_responses INTEGER NOT NULL DEFAULT 0;

-- Responses that a key or route says are kept: the only table with prompts and answers. A row is its key's alone.
CREATE TABLE responses (
	id INTEGER PRIMARY KEY,
	key TEXT NOT NULL, -- the name: a key and those it replaced share what they keep
	response TEXT NOT NULL,
	local INTEGER NOT NULL, -- it may not leave the machines you own
	created INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	size INTEGER NOT NULL, -- bytes of the two below
	input BLOB NOT NULL, -- all items that were asked with
	answer BLOB NOT NULL
);
CREATE UNIQUE INDEX responses_response ON responses (key, response);
CREATE INDEX responses_created ON responses (key, created, size);
CREATE INDEX responses_expires ON responses (expires);

PRAGMA user_version = 2;
