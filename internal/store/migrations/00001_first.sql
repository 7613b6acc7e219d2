-- +goose Up

-- One row per request. Times are microseconds; NULL is unknown. Never prompts, answers or keys.
CREATE TABLE requests (
	id INTEGER PRIMARY KEY,
	time INTEGER NOT NULL,
	request TEXT NOT NULL,
	op TEXT, dialect TEXT, alias TEXT, class TEXT, route TEXT, tier TEXT, pool TEXT, backend TEXT, model TEXT, served TEXT,
	status INTEGER, kind TEXT, message TEXT, reroute TEXT, attempts TEXT,
	queue INTEGER, first INTEGER, total INTEGER, overhead INTEGER,
	tokens_in INTEGER, tokens_out INTEGER, tokens_cached INTEGER, tokens_reasoning INTEGER, tokens_estimated INTEGER,
	cost_usd REAL,
	key TEXT, key_id TEXT, session TEXT, tag TEXT, version TEXT,
	trace TEXT,
	shape TEXT -- a JSON object: seven columns would cost a fifth of the whole row, and generated ones as much
);
CREATE INDEX requests_time ON requests (time);
CREATE INDEX requests_request ON requests (request);

-- Facts without a request: health, swap, alert, shift, audit.
CREATE TABLE facts (
	id INTEGER PRIMARY KEY,
	time INTEGER NOT NULL,
	event TEXT NOT NULL,
	request TEXT, route TEXT, tier TEXT, pool TEXT, model TEXT, kind TEXT, reason TEXT,
	origin TEXT, target TEXT, actor TEXT, detail TEXT
);
CREATE INDEX facts_time ON facts (time);

-- A key is known by its hash alone. The prefix is public.
CREATE TABLE keys (
	prefix TEXT PRIMARY KEY,
	name TEXT NOT NULL,
	hash BLOB NOT NULL,
	aliases TEXT NOT NULL,
	boundary TEXT NOT NULL,
	priority INTEGER NOT NULL,
	rpm INTEGER NOT NULL,
	concurrent INTEGER NOT NULL,
	created INTEGER NOT NULL,
	expires INTEGER,
	revoked INTEGER,
	rotated_until INTEGER
) WITHOUT ROWID;
CREATE INDEX keys_name ON keys (name);

-- What was measured of prefill, so that a restart knows it.
CREATE TABLE prefill (
	pool TEXT NOT NULL,
	backend TEXT NOT NULL,
	rate REAL NOT NULL,
	time INTEGER NOT NULL,
	PRIMARY KEY (pool, backend)
) WITHOUT ROWID;

CREATE TABLE meta (
	name TEXT PRIMARY KEY,
	value TEXT NOT NULL
) WITHOUT ROWID;

PRAGMA user_version = 1;
