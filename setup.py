"""Reads every figure from settings.ini, so that it stands in one place only."""

from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

config = ConfigParser(delimiters=["="], interpolation=None)
config.read("settings.ini", encoding="utf-8")
settings = config["DEFAULT"]

setup(
    name=settings["lib_name"],
    version=settings["version"],
    description=settings["description"],
    long_description=Path("README.md").read_text(encoding="utf-8")
    if Path("README.md").exists()
    else "",
    long_description_content_type="text/markdown",
    author=settings["author"],
    license="MIT",
    keywords=settings["keywords"].split(),
    packages=find_packages(include=["dpsbi", "dpsbi.*"]),
    package_data={"dpsbi": ["data/*.json", "data/*.csv.gz", "py.typed"]},
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Mathematics",
        "Typing :: Typed",
    ],
    python_requires=f">={settings['min_python']}",
    install_requires=settings["requirements"].split(),
    extras_require={
        "dev": settings["dev_requirements"].split(),
        "docs": settings["docs_requirements"].split(),
        "bench": settings["bench_requirements"].split(),
        "dask": settings["dask_requirements"].split(),
        "browser": settings["browser_requirements"].split(),
    },
)
