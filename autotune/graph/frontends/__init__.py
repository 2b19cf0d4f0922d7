"""Front ends: modules that import models of other tools as graphs."""
