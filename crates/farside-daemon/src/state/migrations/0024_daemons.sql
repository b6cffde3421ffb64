-- Where else a peer is reached: at the other daemons of its site. Addresses, with spaces between them.
ALTER TABLE peers ADD COLUMN other_addresses TEXT NOT NULL DEFAULT '';
