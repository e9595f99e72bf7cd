"""What the coordinator answers to a WebHDFS client, to the letter where stock clients depend on it."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import JAVA, NameSide, Reply, request
