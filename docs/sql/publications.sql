-- When was each version installed, of which step, and how long was generation paused for it? The pause has two parts:
-- until the weights were installed, and until generation resumed.
SELECT p.version, p.step, p.mode, round(p.at_ns / 1e6, 3) AS installed_at_ms,
       round((p.at_ns - p.pause_began_ns) / 1e6, 3) AS installing_ms,
       round((r.at_ns - p.at_ns) / 1e6, 3) AS resuming_ms,
       round((r.at_ns - p.pause_began_ns) / 1e6, 3) AS paused_ms
FROM publications p
LEFT JOIN events r ON r.kind = 'generation_resumed' AND r.version = p.version AND r.session = p.session
WHERE p.kind = 'published'
ORDER BY p.version;
