"""A weather server over an API with JSON: one place for its requests, errors in words, a timeout, and a fake for tests.

`linkspan call examples/weather.py forecast city=Oslo` answers from the fake; `linkspan run examples/weather.py -- --live` serves
https://open-meteo.com, which needs no key.
"""

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from linkspan import Depends, ErrorMap, Server, ToolError

Fetch = Callable[..., Any]

GEOCODING = "https://geocoding-api.open-meteo.com/v1/search"
FORECAST = "https://api.open-meteo.com/v1/forecast"

server = Server("weather", version="1.0.0", instructions="Forecasts for cities, up to 16 days ahead.")
server.middleware(ErrorMap({URLError: "The weather service cannot be reached: {e.reason}"}))


def fetch(url: str, **query: object) -> Any:
    """Return the JSON of one request to the service."""
    with urlopen(f"{url}?{urlencode(query)}", timeout=10) as response:
        return json.load(response)


def fake_fetch(url: str, **query: Any) -> Any:
    """Return what the service would, for one city and the same weather each day."""
    if url == GEOCODING:
        known = query["name"].lower() == "oslo"
        return (
            {"results": [{"name": "Oslo", "country": "Norway", "latitude": 59.91, "longitude": 10.75}]} if known else {}
        )
    days = [f"2026-11-{day:02}" for day in range(22, 22 + query["forecast_days"])]
    count = len(days)
    return {"daily": {"time": days, "temperature_2m_max": [3.5] * count, "precipitation_sum": [0.2] * count}}


def get_fetch() -> Fetch:
    """Choose between the service and the fake. Tests choose with `server.override(get_fetch, ...)`."""
    return fetch if "--live" in sys.argv else fake_fetch


Service = Annotated[Fetch, Depends(get_fetch)]


@server.tool(annotations={"title": "Forecast", "read_only_hint": True, "open_world_hint": True}, timeout=20)
def forecast(city: str, service: Service, days: int = 3) -> list[dict[str, Any]]:
    """Forecast the weather of a city.

    Args:
        city: Its name in English.
        days: For how many days, from today: 1 to 16.
    """
    if not 1 <= days <= 16:
        raise ToolError("There are forecasts for 1 to 16 days")
    places = service(GEOCODING, name=city, count=1).get("results", [])
    if not places:
        raise ToolError(f"There is no city {city!r}; try its English name, or a larger city near it")
    place = places[0]
    wanted = "temperature_2m_max,precipitation_sum"
    found = service(
        FORECAST, latitude=place["latitude"], longitude=place["longitude"], daily=wanted, forecast_days=days
    )["daily"]
    rows = zip(found["time"], found["temperature_2m_max"], found["precipitation_sum"], strict=True)
    return [{"day": day, "highest_celsius": warm, "rain_mm": rain} for day, warm, rain in rows]


if __name__ == "__main__":
    server.run()
