-- Runs of gates can be cancelled, and asked for again by a key. A CHECK cannot be changed: the table is made anew. Its
-- measurements wait elsewhere meanwhile: DROP TABLE deletes rows first, and what refers to them would go along.

CREATE TABLE gate_run_new (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	gate TEXT NOT NULL,
	gate_version INTEGER NOT NULL,
	model TEXT NOT NULL,
	baseline TEXT,
	baseline_version INTEGER,
	tags TEXT NOT NULL CHECK (json_valid(tags)),
	allow_engine_change INTEGER NOT NULL CHECK (allow_engine_change IN (0, 1)),
	state TEXT NOT NULL DEFAULT 'measuring' CHECK (state IN ('measuring', 'judging', 'done', 'failed', 'cancelled')),
	created_ms INTEGER NOT NULL,
	finished_ms INTEGER,
	verdict TEXT CHECK (verdict IS NULL OR json_valid(verdict)),
	outcome TEXT CHECK (outcome IN ('pass', 'fail', 'inconclusive', 'error')), -- the verdict's
	fingerprint TEXT, -- of the model that was judged; NULL: it was not measured
	error TEXT, -- why it could not be judged

	-- the message to the gate's webhook; NULL: it has none, or there is no verdict yet
	hook TEXT CHECK (hook IN ('waiting', 'delivered', 'given_up')),
	hook_tries INTEGER NOT NULL DEFAULT 0 CHECK (hook_tries >= 0),
	hook_at_ms INTEGER, -- of the next try, or of the last
	hook_error TEXT,

	idempotency_key TEXT UNIQUE,
	request_hash TEXT,

	FOREIGN KEY (gate, gate_version) REFERENCES gate (name, version),
	CHECK ((baseline IS NULL) = (baseline_version IS NULL)),
	CHECK ((finished_ms IS NOT NULL) = (state IN ('done', 'failed', 'cancelled'))),
	CHECK ((state = 'done') = (verdict IS NOT NULL)),
	CHECK ((verdict IS NULL) = (outcome IS NULL)),
	CHECK ((state = 'failed') = (error IS NOT NULL)),
	CHECK (hook IS NULL OR state = 'done')
) STRICT;

INSERT INTO gate_run_new (id, gate, gate_version, model, baseline, baseline_version, tags, allow_engine_change, state,
	created_ms, finished_ms, verdict, outcome, fingerprint, error, hook, hook_tries, hook_at_ms, hook_error)
SELECT id, gate, gate_version, model, baseline, baseline_version, tags, allow_engine_change, state,
	created_ms, finished_ms, verdict, outcome, fingerprint, error, hook, hook_tries, hook_at_ms, hook_error FROM gate_run;

CREATE TABLE kept_measure AS SELECT * FROM gate_measure;
DROP TABLE gate_measure;
DROP TABLE gate_run;
ALTER TABLE gate_run_new RENAME TO gate_run;

CREATE INDEX gate_run_gate ON gate_run (gate, id);
CREATE INDEX gate_run_open ON gate_run (id) WHERE state IN ('measuring', 'judging') OR hook = 'waiting';

-- The jobs of a run, in the order of the gate's measurements. job_id is no reference: a verdict outlives its jobs.
CREATE TABLE gate_measure (
	run_id INTEGER NOT NULL REFERENCES gate_run (id) ON DELETE CASCADE,
	place INTEGER NOT NULL CHECK (place >= 0),
	measure TEXT NOT NULL,
	job_id INTEGER NOT NULL,
	protocol TEXT, -- what a value of it may be compared with: a hash of task, version, parameters, dataset, tokenizer, engine
	PRIMARY KEY (run_id, place)
) STRICT, WITHOUT ROWID;

INSERT INTO gate_measure (run_id, place, measure, job_id, protocol)
SELECT run_id, place, measure, job_id, protocol FROM kept_measure;
DROP TABLE kept_measure;

CREATE INDEX gate_measure_protocol ON gate_measure (protocol) WHERE protocol IS NOT NULL;
CREATE INDEX gate_measure_job ON gate_measure (job_id);
