-- A right belongs to a volume, whatever that is called by now. Null: it was given to a name that no volume had, and binds to the
-- first that gets it. Rights from before bind when their pool is opened.
ALTER TABLE rights ADD COLUMN volume_id BLOB;
