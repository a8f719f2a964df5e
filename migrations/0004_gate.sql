-- Gates: what results are compared with, the rules, and the runs that judge models by them.

-- A name's results; each change is a new version, and the earlier ones stay.
CREATE TABLE baseline (
	name TEXT NOT NULL,
	version INTEGER NOT NULL CHECK (version >= 1),
	created_ms INTEGER NOT NULL,
	PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

-- A job's result, or one that was imported with its items. A job that is held is neither deleted nor computed anew.
CREATE TABLE baseline_result (
	name TEXT NOT NULL,
	version INTEGER NOT NULL,
	place INTEGER NOT NULL CHECK (place >= 0),
	job_id INTEGER REFERENCES job (id),
	result TEXT CHECK (result IS NULL OR json_valid(result)),
	items TEXT CHECK (items IS NULL OR json_valid(items)),
	PRIMARY KEY (name, version, place),
	FOREIGN KEY (name, version) REFERENCES baseline (name, version) ON DELETE CASCADE,
	CHECK ((job_id IS NULL) = (result IS NOT NULL AND items IS NOT NULL))
) STRICT;

CREATE INDEX baseline_result_job ON baseline_result (job_id) WHERE job_id IS NOT NULL;

-- The same definition is the same version, whoever posts it; the one posted last is current.
CREATE TABLE gate (
	name TEXT NOT NULL,
	version INTEGER NOT NULL CHECK (version >= 1),
	created_ms INTEGER NOT NULL,
	posted_ms INTEGER NOT NULL,
	definition TEXT NOT NULL CHECK (json_valid(definition)),
	PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE gate_run (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	gate TEXT NOT NULL,
	gate_version INTEGER NOT NULL,
	model TEXT NOT NULL,
	baseline TEXT,
	baseline_version INTEGER,
	tags TEXT NOT NULL CHECK (json_valid(tags)),
	allow_engine_change INTEGER NOT NULL CHECK (allow_engine_change IN (0, 1)),
	state TEXT NOT NULL DEFAULT 'measuring' CHECK (state IN ('measuring', 'judging', 'done', 'failed')),
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

	FOREIGN KEY (gate, gate_version) REFERENCES gate (name, version),
	CHECK ((baseline IS NULL) = (baseline_version IS NULL)),
	CHECK ((finished_ms IS NOT NULL) = (state IN ('done', 'failed'))),
	CHECK ((state = 'done') = (verdict IS NOT NULL)),
	CHECK ((verdict IS NULL) = (outcome IS NULL)),
	CHECK ((state = 'failed') = (error IS NOT NULL)),
	CHECK (hook IS NULL OR state = 'done')
) STRICT;

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

CREATE INDEX gate_measure_protocol ON gate_measure (protocol) WHERE protocol IS NOT NULL;
CREATE INDEX gate_measure_job ON gate_measure (job_id);

-- A job may take the units of an earlier one that computed the same.
ALTER TABLE job ADD COLUMN cache INTEGER NOT NULL DEFAULT 0 CHECK (cache IN (0, 1));
ALTER TABLE job ADD COLUMN cached_from INTEGER;

CREATE INDEX job_pins ON job (pin_model, pin_dataset) WHERE state = 'succeeded';
