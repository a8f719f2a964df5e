-- Jobs, the results of their units, and what happened to them.

CREATE TABLE job (
	id INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again: links and event streams stay true
	state TEXT NOT NULL DEFAULT 'queued'
		CHECK (state IN ('queued', 'running', 'cancelling', 'succeeded', 'failed', 'cancelled')),
	name TEXT,
	model TEXT NOT NULL,
	task TEXT NOT NULL,
	dataset TEXT NOT NULL,
	params TEXT NOT NULL CHECK (json_valid(params)),
	engine TEXT NOT NULL CHECK (json_valid(engine)),
	tags TEXT NOT NULL CHECK (json_valid(tags)),
	priority INTEGER NOT NULL DEFAULT 0,
	created_ms INTEGER NOT NULL,
	started_ms INTEGER,
	finished_ms INTEGER,

	-- what the first plan found; later plans must find the same
	plan TEXT CHECK (plan IS NULL OR json_valid(plan)),
	pin_model TEXT,
	pin_tokenizer TEXT,
	pin_dataset TEXT,
	pin_signature TEXT,
	n_units INTEGER NOT NULL DEFAULT 0 CHECK (n_units >= 0),
	total_tokens INTEGER NOT NULL DEFAULT 0 CHECK (total_tokens >= 0),

	-- counts of the rows of unit and unit_failure, changed in the same transactions
	done_units INTEGER NOT NULL DEFAULT 0 CHECK (done_units >= 0),
	failed_units INTEGER NOT NULL DEFAULT 0 CHECK (failed_units >= 0),
	done_tokens INTEGER NOT NULL DEFAULT 0 CHECK (done_tokens >= 0),
	seconds REAL NOT NULL DEFAULT 0 CHECK (seconds >= 0),
	repeated_units INTEGER NOT NULL DEFAULT 0, -- results that came for a unit already stored: work done twice

	waiting TEXT CHECK (waiting IS NULL OR state = 'queued'),
	error TEXT CHECK (error IS NULL OR json_valid(error)),
	result TEXT CHECK (result IS NULL OR json_valid(result)),
	idempotency_key TEXT UNIQUE,
	request_hash TEXT,

	CHECK (done_units + failed_units <= n_units),
	CHECK ((plan IS NULL) = (pin_signature IS NULL)),
	CHECK ((finished_ms IS NOT NULL) = (state IN ('succeeded', 'failed', 'cancelled'))),
	CHECK (state <> 'running' OR started_ms IS NOT NULL),
	CHECK (state <> 'succeeded' OR (result IS NOT NULL AND failed_units = 0 AND done_units = n_units)),
	CHECK ((state = 'failed') = (error IS NOT NULL)),
	CHECK (result IS NULL OR state IN ('succeeded', 'failed'))
) STRICT;

CREATE INDEX job_active ON job (priority DESC, id) WHERE state IN ('queued', 'running', 'cancelling');

-- A unit is computed once: its row is here, or in unit_failure, or it is still to do.
CREATE TABLE unit (
	job_id INTEGER NOT NULL REFERENCES job (id) ON DELETE CASCADE,
	unit INTEGER NOT NULL CHECK (unit >= 0),
	result TEXT NOT NULL,
	PRIMARY KEY (job_id, unit)
) STRICT, WITHOUT ROWID;

CREATE TABLE unit_failure (
	job_id INTEGER NOT NULL REFERENCES job (id) ON DELETE CASCADE,
	unit INTEGER NOT NULL CHECK (unit >= 0),
	code TEXT NOT NULL,
	message TEXT NOT NULL,
	PRIMARY KEY (job_id, unit)
) STRICT, WITHOUT ROWID;

-- Written in the transaction that changes the state. job_id is no reference: "deleted" outlives its job.
CREATE TABLE event (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	job_id INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	kind TEXT NOT NULL CHECK (kind IN
		('created', 'state', 'planned', 'waiting', 'progress', 'unit_failed', 'restarted', 'deleted')),
	data TEXT NOT NULL CHECK (json_valid(data))
) STRICT;

CREATE INDEX event_job ON event (job_id, id);
