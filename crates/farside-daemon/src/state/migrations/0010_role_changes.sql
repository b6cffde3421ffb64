-- The field's terms. The value 'turning' stands in the column's constraint, so the column is made anew.
ALTER TABLE relationships RENAME COLUMN turn TO role_change;
ALTER TABLE relationships ADD COLUMN swap_mark TEXT CHECK (swap_mark IN ('swapping', 'prepared', 'prepared-new'));
UPDATE relationships SET swap_mark = CASE swap WHEN 'turning' THEN 'swapping' ELSE swap END;
ALTER TABLE relationships DROP COLUMN swap;
ALTER TABLE relationships RENAME COLUMN swap_mark TO swap;
ALTER TABLE source_relationships RENAME COLUMN overtaken_heard_at TO overtaken_reported_at;
ALTER TABLE source_relationships RENAME COLUMN let_go_at TO released_at;
ALTER TABLE source_relationships RENAME COLUMN let_go_why TO released_why;
-- Fields of history. In texts inside a record quotes are escaped, so only names of fields match.
UPDATE transfers SET record = replace(replace(record, '"held_bytes":', '"resumed_bytes":'), '"rungs":', '"levels":');
