"""The mirror of lua/log, by what the calls are about. Offsets are ints, times ms since 1970."""

from korvet.scripts.log.appending import *
from korvet.scripts.log.cleaning import *
from korvet.scripts.log.lifecycle import *
from korvet.scripts.log.offsets import *
from korvet.scripts.log.redis_groups import *
from korvet.scripts.log.segments import *
from korvet.scripts.log.transactions import *
