"""Templates: schedules written by hand with knobs in them, which become search spaces (AutoTVM's way)."""

from search_space.template.base import Template, TemplateSpace, TuningTemplate, template
from search_space.template.config import Config
from search_space.template.registry import TEMPLATES, get

__all__ = ["TEMPLATES", "Config", "Template", "TemplateSpace", "TuningTemplate", "get", "template"]
