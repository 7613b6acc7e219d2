-- +goose Up

-- Each accepted text of the configuration. Numbers rise and are never used again.
CREATE TABLE versions (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	time INTEGER NOT NULL,
	sum TEXT NOT NULL, -- SHA-256 of the text, in hex
	text BLOB NOT NULL,
	author TEXT NOT NULL,
	note TEXT NOT NULL, -- how it came: start, shift, rollback, import; and the author's words
	smoke TEXT NOT NULL -- JSON of the smoke result; '' where there was none yet
);

-- Alerts, and what still has to be delivered of them.
CREATE TABLE alerts (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	time INTEGER NOT NULL,
	name TEXT NOT NULL, -- ejected, denied, gone, merged, spend, shift, swap …
	subject TEXT NOT NULL, -- what it is about: pool, backend, key; with name it is the alert's identity
	state TEXT NOT NULL, -- firing, resolved
	body TEXT NOT NULL -- JSON of what is told
);
CREATE INDEX alerts_time ON alerts (time);
CREATE TABLE deliveries (
	alert INTEGER NOT NULL,
	sink TEXT NOT NULL,
	tries INTEGER NOT NULL,
	next INTEGER NOT NULL, -- when it is tried again
	PRIMARY KEY (alert, sink)
) WITHOUT ROWID;

-- What calibrating found: a cap that was seen to hold, and what refused beyond it.
CREATE TABLE calibrations (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	time INTEGER NOT NULL,
	pool TEXT NOT NULL,
	hour INTEGER NOT NULL, -- of the day, UTC
	cap INTEGER NOT NULL,
	shape TEXT NOT NULL, -- JSON
	evidence TEXT NOT NULL -- JSON
);
CREATE INDEX calibrations_pool ON calibrations (pool, time);

-- Bodies that an operator chose to keep for a while.
CREATE TABLE captures (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	time INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	key TEXT NOT NULL,
	request TEXT NOT NULL,
	size INTEGER NOT NULL,
	body BLOB NOT NULL,
	answer BLOB NOT NULL
);
CREATE INDEX captures_expires ON captures (expires);

PRAGMA user_version = 4;
