"""Calls of the scripts in lua/group, one module per subject."""

from korvet.scripts.group.commits import *
from korvet.scripts.group.consumer_group import *
from korvet.scripts.group.lag_history import *
from korvet.scripts.group.members import *
from korvet.scripts.group.registry import *
from korvet.scripts.group.share_group import *
from korvet.scripts.group.streams_group import *
