-- Hosts here may not write to the volume while the peer has overtaken it.
ALTER TABLE rights ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;
