"""A small stock list. `make demo` completes the method at the end."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Item:
    """One article on the shelf."""

    name: str
    price: float
    quantity: int = 0


@dataclass
class Inventory:
    """Everything that is in stock, by name."""

    items: dict[str, Item] = field(default_factory=dict)

    def add(self, name: str, price: float, quantity: int = 1) -> Item:
        """Puts an article on the shelf, or more of one that is there already."""
        if name not in self.items:
            self.items[name] = Item(name, price)
        self.items[name].quantity += quantity
        return self.items[name]

    def remove(self, name: str, quantity: int = 1) -> Item:
        """Takes an article off the shelf; it stays listed with quantity 0."""
        if name not in self.items:
            raise KeyError(f"no article named {name!r}")
        if self.items[name].quantity < quantity:
            raise ValueError(f"only {self.items[name].quantity} of {name!r} left")
        self.items[name].quantity -= quantity
        return self.items[name]

    def total_value(self) -> float:
        """The value of everything in stock."""
        return


if __name__ == "__main__":
    inventory = Inventory()
    inventory.add("bolt", 0.25, 400)
    inventory.add("nut", 0.10, 600)
    print(f"in stock: {inventory.total_value():.2f}")
