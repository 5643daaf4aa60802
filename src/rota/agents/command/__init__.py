"""Any program: instructions on its input or among its words, text or lines of Rota's out."""
