/-
A derivation of symcircuits: each theorem is a printed claim, for matrices over any commutative
ring, whose rows and columns are numbered by any finite types.

Not compiled where it was written. `lake env lean FILE` compiles it, in the folder of a Lake project
that requires Mathlib (Lean 4.12 or later).

First how a claim is proved: both sides are multiplied out, and their sums of words compared. Then
the claims, and what each theorem assumes. The last lines name the claims that have no theorem.
-/
import Mathlib

set_option autoImplicit false
set_option maxRecDepth 10000
set_option maxHeartbeats 4000000

namespace Symcircuits

open scoped Matrix

/-- The identity matrix, of the size that fits. -/
def identity {R n : Type*} [CommRing R] [DecidableEq n] : Matrix n n R := 1

/-- The tensor `A ⊗ W` as it acts: `X ↦ A X Wᵀ`. -/
def tensor {R m n a b : Type*} [CommRing R] [Fintype n] [Fintype b]
    (A : Matrix m n R) (W : Matrix a b R) (X : Matrix n b R) : Matrix m a R :=
  A * X * Wᵀ

/-- The tensor `A_q ⊗ A_k ⊗ W` as it acts: `(x, y) ↦ A_q x W yᵀ A_kᵀ`. -/
def tensor3 {R m n a m' n' b : Type*} [CommRing R] [Fintype n] [Fintype a] [Fintype n'] [Fintype b]
    (A_q : Matrix m n R) (A_k : Matrix m' n' R) (W : Matrix a b R)
    (xy : Matrix n a R × Matrix n' b R) : Matrix m m' R :=
  A_q * xy.1 * W * (xy.2)ᵀ * A_kᵀ

/-- The sum of what acts. -/
def plus {α β : Type*} [Add β] (f g : α → β) (x : α) : β := f x + g x

/-- What acts, times a scalar. -/
def scaled {R α β : Type*} [SMul R β] (c : R) (f : α → β) (x : α) : β := c • f x

local infixl:65 " +ₒ " => plus

/-- The elementary symmetric polynomial `e_k` of numbers of heads. -/
def elementary : ℕ → List ℕ → ℕ
  | 0, _ => 1
  | _ + 1, [] => 0
  | k + 1, H :: rest => elementary (k + 1) rest + H * elementary k rest

/-- Multiply both sides out, down to weights and patterns, and compare their sums of words. -/
macro "multiply_out" : tactic => `(tactic|
  (intros
   try simp only [*, identity, tensor, tensor3, plus, scaled, Function.comp_apply, id_eq,
     Matrix.mul_add, Matrix.add_mul, Matrix.mul_assoc, Matrix.mul_one, Matrix.one_mul,
     Matrix.transpose_add, Matrix.transpose_mul, Matrix.transpose_smul, Matrix.transpose_one,
     Matrix.transpose_transpose, Matrix.mul_smul, Matrix.smul_mul, smul_add, smul_smul]
   first | done | abel1 | module))

/-- Count the terms of a list, and compute the formula. -/
macro "count_terms" : tactic => `(tactic| first | exact rfl | decide | simp [elementary])

