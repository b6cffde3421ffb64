-- When and why the base of a destination was let go here, because of a budget; null if it was not.
ALTER TABLE source_relationships ADD COLUMN let_go_at INTEGER;
ALTER TABLE source_relationships ADD COLUMN let_go_why TEXT;
