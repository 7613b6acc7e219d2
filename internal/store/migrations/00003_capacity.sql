-- +goose Up

-- Cost in nano-dollars; NULL is unknown. It was never known before.
ALTER TABLE requests DROP COLUMN cost_usd;
ALTER TABLE requests ADD COLUMN cost INTEGER;
ALTER TABLE requests ADD COLUMN tokens_written INTEGER; -- of the prompt, into the vendor's cache

-- Limits of a key: tokens in any minute, nano-dollars in a day and a month; 0 is none.
ALTER TABLE keys ADD COLUMN tpm INTEGER NOT NULL DEFAULT 0;
ALTER TABLE keys ADD COLUMN spend_day INTEGER NOT NULL DEFAULT 0;
ALTER TABLE keys ADD COLUMN spend_month INTEGER NOT NULL DEFAULT 0;

-- What was spent, by day (days since 1970, UTC). It outlives the rows of the requests.
CREATE TABLE spend (
	day INTEGER NOT NULL,
	scope TEXT NOT NULL, -- key, pool, total
	name TEXT NOT NULL, -- of the key or pool; '' for the total
	purpose TEXT NOT NULL, -- client, disconnect, probe, judge, triage, helper
	cost INTEGER NOT NULL, -- nano-dollars
	reserved INTEGER NOT NULL, -- of calls that had not ended when this was written
	requests INTEGER NOT NULL,
	unpriced INTEGER NOT NULL, -- of these, at an unknown price
	PRIMARY KEY (day, scope, name, purpose)
) WITHOUT ROWID;

-- Pools that turned out to be another one.
CREATE TABLE merges (
	asked TEXT PRIMARY KEY, -- pool
	serving TEXT NOT NULL, -- pool
	vendor TEXT NOT NULL,
	state TEXT NOT NULL, -- learnt, confirmed, undone
	time INTEGER NOT NULL,
	evidence TEXT NOT NULL -- human words: what was asked, what the answers named
) WITHOUT ROWID;

-- Pools and backends that were taken out by hand.
CREATE TABLE pools_out (
	pool TEXT NOT NULL,
	backend TEXT NOT NULL, -- '' for the whole pool
	since INTEGER NOT NULL,
	until INTEGER, -- NULL: until it is put back
	why TEXT NOT NULL,
	actor TEXT NOT NULL,
	PRIMARY KEY (pool, backend)
) WITHOUT ROWID;

PRAGMA user_version = 3;
