-- after_upgrade.sql - the calls, results, quotas, models and rights of before_upgrade.sql
SELECT t, (r).text, (r).finish_reason FROM asked ORDER BY i;
SELECT * FROM llm.quotas;
SELECT name, owner, path, has_server_privilege('analyst', name, 'USAGE') FROM llm.models;
