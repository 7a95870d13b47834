"""Reads every figure from settings.ini, so that it stands in one place only."""

from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

config = ConfigParser(delimiters=["="], interpolation=None)
config.read("settings.ini", encoding="utf-8")
settings = config["DEFAULT"]


class Modules(build_py):
    "All but nbdev's index, which only `make export` reads."

    def find_package_modules(self, package, package_dir):
        found = super().find_package_modules(package, package_dir)
        return [module for module in found if module[1] != "_modidx"]


USERS = "owner", "neural", "arviz", "explore"  # extras; together they are `all`
MAKERS = "dev", "docs", "bench", "dask", "browser"

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
    cmdclass={"build_py": Modules},
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
    extras_require={extra: settings[f"{extra}_requirements"].split() for extra in (*USERS, *MAKERS)}
    | {"all": [each for extra in USERS for each in settings[f"{extra}_requirements"].split()]},
)
