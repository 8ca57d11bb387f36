"""sympy_layer"""
