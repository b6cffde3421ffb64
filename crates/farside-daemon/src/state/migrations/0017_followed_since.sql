-- Of a volume that was overtaken: what the one that went on follows since. The places of a message of the mirror protocol.
ALTER TABLE source_relationships ADD COLUMN overtaken_follows BLOB;
