-- How a role change that is 'swapping' has ended at this side, as long as the other has not learnt of it: by its takeover, or by
-- a person's break. Without it only a volume that is still a replica tells that the roles did not change.
ALTER TABLE relationships ADD COLUMN swap_ended TEXT CHECK (swap_ended IN ('taken-over', 'given-up'));
