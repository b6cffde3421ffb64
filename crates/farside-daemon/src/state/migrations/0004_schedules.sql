-- Schedules are text: `every 10s`, or the five fields of a timetable and its time zone. NULL: on request.
ALTER TABLE relationships ADD COLUMN schedule TEXT;
UPDATE relationships
    SET schedule = printf('every %d.%09ds', every_nanoseconds / 1000000000, every_nanoseconds % 1000000000)
    WHERE every_nanoseconds IS NOT NULL;
ALTER TABLE relationships DROP COLUMN every_nanoseconds;
