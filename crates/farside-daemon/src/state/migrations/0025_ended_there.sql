-- Of a mirror that was broken off: its source followed it, and has ended that mirror since. What was so before this row knew it is not known.
ALTER TABLE relationships ADD COLUMN ended_there INTEGER NOT NULL DEFAULT 0;
