-- Descriptions of models, as a short-lived worker resolved them. A cache: rows may be dropped at any time.

CREATE TABLE model (
	path TEXT PRIMARY KEY,
	stat_key TEXT NOT NULL, -- program version, then size, mtime and ctime of the files that the description came from
	description TEXT NOT NULL CHECK (json_valid(description))
) STRICT, WITHOUT ROWID;
