"""JSON lines on standard error, for every library's log as well as for ours; called once by `__main__`."""

import logging
import sys

import structlog


def set_up_logging(level: str) -> None:
    """Sends structlog and the standard library's logging through one JSON renderer."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processor=structlog.processors.JSONRenderer(), foreign_pre_chain=[*shared])
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for noisy in ("kopf", "urllib3", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.getLevelName(level), logging.WARNING))
