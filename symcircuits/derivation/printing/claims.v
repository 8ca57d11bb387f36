(* A derivation of symcircuits: each lemma is a printed claim, for matrices of any shapes over any commutative ring.
   Compile with coqc (Coq 8.16, mathcomp 1.15). Below: how a claim is proved, by multiplying out both sides and comparing
   their sums of words; at the end: the claims. *)
From mathcomp Require Import all_ssreflect all_algebra.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* Tensors as they act: (A (x) W) X, and (A_q (x) A_k (x) W)(x, y); sums of what acts, and one after the other. *)
Definition tensor (R : ringType) m n a b (A : 'M[R]_(m, n)) (W : 'M[R]_(a, b)) (X : 'M[R]_(n, b)) : 'M[R]_(m, a) :=
  A *m X *m W^T.
Definition tensor3 (R : ringType) m n a m' n' b (A_q : 'M[R]_(m, n)) (A_k : 'M[R]_(m', n')) (W : 'M[R]_(a, b))
  (xy : 'M[R]_(n, a) * 'M[R]_(n', b)) : 'M[R]_(m, m') := A_q *m xy.1 *m W *m xy.2^T *m A_k^T.
Definition Id {T : Type} (x : T) : T := x.
Definition sum_acts (T : Type) (V : zmodType) (f g : T -> V) : T -> V := fun x => f x + g x.
Definition after (T U V : Type) (f : U -> V) (g : T -> U) : T -> V := fun x => f (g x).
Definition scaled_acts (T : Type) (R : ringType) (V : lmodType R) (c : R) (f : T -> V) : T -> V := fun x => c *: f x.
Notation "f \oplus g" := (sum_acts f g) (at level 50, left associativity).
Notation "f \after g" := (after f g) (at level 40, left associativity).
Notation "c \times f" := (scaled_acts c f) (at level 40).

(* The elementary symmetric polynomial e_k of numbers of heads. *)
Fixpoint elementary k (Hs : seq nat) : nat :=
  match k, Hs with 0, _ => 1 | _.+1, [::] => 0 | k'.+1, H :: rest => elementary k rest + H * elementary k' rest end.

(* Sums as trees of places of an environment. *)
Inductive sum_tree := Word of nat | Plus of sum_tree & sum_tree.
Fixpoint sum_of (V : zmodType) (env : seq V) (s : sum_tree) : V :=
  match s with Word i => nth 0 env i | Plus a b => sum_of env a + sum_of env b end.
Fixpoint words_of (s : sum_tree) : seq nat :=
  match s with Word i => [:: i] | Plus a b => words_of a ++ words_of b end.
Lemma sum_of_words (V : zmodType) (env : seq V) s : sum_of env s = \sum_(i <- words_of s) nth 0 env i.
Proof. by elim: s => [i | a IHa b IHb] /=; rewrite ?big_seq1 // big_cat IHa IHb. Qed.
Lemma same_sum (V : zmodType) (env : seq V) s1 s2 : perm_eq (words_of s1) (words_of s2) -> sum_of env s1 = sum_of env s2.
Proof. by move=> e; rewrite !sum_of_words (perm_big _ e). Qed.

(* The words of a sum, and the place of each. *)
Ltac add_word w env :=
  let rec go e := lazymatch e with
    | nil => constr:(tt)
    | cons w ?r => constr:(true)
    | cons ?x ?r => go r
    end in
  lazymatch go env with true => env | tt => constr:(cons w env) end.
Ltac words e env := lazymatch e with
  | (?a + ?b)%R => let env1 := words a env in words b env1
  | ?w => add_word w env
  end.
Ltac place w env := lazymatch env with
  | cons w ?r => constr:(0%N)
  | cons ?x ?r => let i := place w r in constr:(S i)
  end.
Ltac tree e env := lazymatch e with
  | (?a + ?b)%R => let s := tree a env in let r := tree b env in constr:(Plus s r)
  | ?w => let i := place w env in constr:(Word i)
  end.
Ltac sums_agree := lazymatch goal with |- @eq ?V ?l ?r =>
  let env0 := words l (@nil V) in let env := words r env0 in
  let s1 := tree l env in let s2 := tree r env in
  change (sum_of env s1 = sum_of env s2); apply: same_sum; vm_compute; reflexivity
  end.

Lemma trD (R : ringType) m n (A B : 'M[R]_(m, n)) : (A + B)^T = A^T + B^T.
Proof. exact: linearD. Qed.
Lemma scaleMl (R : ringType) m n p (a : R) (A : 'M[R]_(m, n)) (B : 'M[R]_(n, p)) : (a *: A) *m B = a *: (A *m B).
Proof. by rewrite scalemxAl. Qed.
Lemma scaleMr (R : comRingType) m n p (a : R) (A : 'M[R]_(m, n)) (B : 'M[R]_(n, p)) : A *m (a *: B) = a *: (A *m B).
Proof. by rewrite scalemxAr. Qed.
Lemma scaleT (R : ringType) m n (a : R) (A : 'M[R]_(m, n)) : (a *: A)^T = a *: A^T.
Proof. exact: linearZ. Qed.
Fixpoint insert (i : nat) (s : seq nat) : seq nat :=
  match s with nil => cons i nil | cons j r => if Nat.leb i j then cons i s else cons j (insert i r) end.
Definition sorted_scalars (s : seq nat) : seq nat := foldr insert nil s.
Lemma perm_insert i s : perm_eq (insert i s) (i :: s).
Proof.
elim: s => [|j s IH] //=; case: (Nat.leb i j) => //.
by rewrite (perm_trans (y := j :: i :: s)) ?perm_cons // (perm_catCA [:: j] [:: i]).
Qed.
Lemma perm_sorted s : perm_eq (sorted_scalars s) s.
Proof. by elim: s => //= i s IH; apply: perm_trans (perm_insert _ _) _; rewrite perm_cons. Qed.

Section Reflection.
Variable R : comRingType.
Variable cs : seq R.

Inductive mx : nat -> nat -> Type :=
| Atom m n of 'M[R]_(m, n) : mx m n
| Mul m n p of mx m n & mx n p : mx m p
| Add m n of mx m n & mx m n : mx m n
| Tr m n of mx m n : mx n m
| Scale m n of nat & mx m n : mx m n.

Fixpoint value m n (e : mx m n) : 'M[R]_(m, n) := match e with
  | Atom _ _ A => A
  | Mul _ _ _ a b => value a *m value b
  | Add _ _ a b => value a + value b
  | Tr _ _ a => (value a)^T
  | Scale _ _ c a => nth 0 cs c *: value a end.

Inductive word : nat -> nat -> Type :=
| Last m n of 'M[R]_(m, n) : word m n
| Next m n p of 'M[R]_(m, n) & word n p : word m p.

Fixpoint app m n p (v : word m n) : word n p -> word m p :=
  match v in word m n return word n p -> word m p with
  | Last _ _ A => fun w => Next A w
  | Next _ _ _ A v' => fun w => Next A (app v' w) end.
Fixpoint onto q m n (acc : 'M[R]_(q, m)) (w : word m n) : 'M[R]_(q, n) :=
  match w in word m n return 'M[R]_(q, m) -> 'M[R]_(q, n) with
  | Last _ _ A => fun acc => acc *m A
  | Next _ _ _ A w' => fun acc => onto (acc *m A) w' end acc.
Definition word_value m n (w : word m n) : 'M[R]_(m, n) := match w with Last _ _ A => A | Next _ _ _ A w' => onto A w' end.

Lemma ontoE q m n (acc : 'M[R]_(q, m)) (w : word m n) : onto acc w = acc *m word_value w.
Proof.
elim: w q acc => //= {}m k p A w' IH q acc; by rewrite !IH mulmxA.
Qed.
Lemma appE m n p (v : word m n) (w : word n p) : word_value (app v w) = word_value v *m word_value w.
Proof.
move: p w; elim: v => [m' n' A | m' k n' A v IH] p w /=; first by rewrite ontoE.
by rewrite !ontoE IH mulmxA.
Qed.

Definition term m n := (seq nat * word m n)%type.
Definition term_value m n (t : term m n) : 'M[R]_(m, n) := foldr (fun c X => nth 0 cs c *: X) (word_value t.2) t.1.
Fixpoint total m n (s : seq (term m n)) : 'M[R]_(m, n) :=
  match s with nil => 0 | cons t nil => term_value t | cons t r => term_value t + total r end.
Lemma totalE m n (s : seq (term m n)) : total s = \sum_(t <- s) term_value t.
Proof. by elim: s => [|t [|t' s] IH]; rewrite ?big_nil ?big_seq1 // big_cons -IH. Qed.

Definition times m n p (s : seq (term m n)) (t : seq (term n p)) : seq (term m p) :=
  flatten (map (fun a => map (fun b => (a.1 ++ b.1, app a.2 b.2)) t) s).
(* The words of an expression (tr = false) and of its transpose (tr = true) at once: transposes go to the atoms. *)
Fixpoint normal m n (e : mx m n) : seq (term m n) * seq (term n m) := match e with
  | Atom _ _ A => ([:: ([::], Last A)], [:: ([::], Last A^T)])
  | Mul _ _ _ a b => let a' := normal a in let b' := normal b in (times a'.1 b'.1, times b'.2 a'.2)
  | Add _ _ a b => let a' := normal a in let b' := normal b in (a'.1 ++ b'.1, a'.2 ++ b'.2)
  | Tr _ _ a => let a' := normal a in (a'.2, a'.1)
  | Scale _ _ c a => let a' := normal a in (map (fun t => (c :: t.1, t.2)) a'.1, map (fun t => (c :: t.1, t.2)) a'.2) end.

Lemma term_timesE m n p (a : term m n) (b : term n p) :
  term_value ((a.1 ++ b.1, app a.2 b.2) : term m p) = term_value a *m term_value b.
Proof.
case: a b => [s v] [t w]; rewrite /term_value /= foldr_cat.
elim: s => [|c s IH] /=; last by rewrite IH scaleMl.
by elim: t => [|c t IH] /=; [rewrite appE | rewrite IH scaleMr].
Qed.
Lemma timesE m n p (s : seq (term m n)) (t : seq (term n p)) : total (times s t) = total s *m total t.
Proof.
rewrite !totalE /times big_flatten big_map mulmx_suml; apply: eq_bigr => a _.
by rewrite big_map mulmx_sumr; apply: eq_bigr => b _; rewrite term_timesE.
Qed.
Lemma scaleE m n c (s : seq (term m n)) : total (map (fun t => (c :: t.1, t.2)) s) = nth 0 cs c *: total s.
Proof. by rewrite !totalE big_map scaler_sumr. Qed.

Theorem normalE m n (e : mx m n) : total (normal e).1 = value e /\ total (normal e).2 = (value e)^T.
Proof.
elim: e => //= {m n}.
- by move=> m n p a [a1 a2] b [b1 b2]; rewrite !timesE a1 a2 b1 b2 trmx_mul.
- by move=> m n a [a1 a2] b [b1 b2]; rewrite totalE big_cat -!totalE a1 b1 [X in _ /\ X = _]totalE big_cat -!totalE a2 b2 trD.
- by move=> m n a [a1 a2]; rewrite a1 a2 trmxK.
- by move=> m n c a [a1 a2]; rewrite !scaleE a1 a2 scaleT.
Qed.

Lemma term_scalarsE m n (t : term m n) : term_value t = (\prod_(c <- t.1) nth 0 cs c) *: word_value t.2.
Proof.
case: t => s w; rewrite /term_value /=; elim: s => [|c s IH] /=; first by rewrite big_nil scale1r.
by rewrite IH big_cons scalerA.
Qed.
Definition tidy m n (s : seq (term m n)) : seq (term m n) := map (fun t => (sorted_scalars t.1, t.2)) s.
Lemma tidyE m n (s : seq (term m n)) : total (tidy s) = total s.
Proof. by rewrite !totalE big_map; apply: eq_bigr => t _; rewrite !term_scalarsE (perm_big _ (perm_sorted t.1)). Qed.

Lemma by_words m n (e f : mx m n) : total (tidy (normal e).1) = total (tidy (normal f).1) -> value e = value f.
Proof. by rewrite !tidyE; case: (normalE e) => -> _; case: (normalE f) => -> _. Qed.
End Reflection.

(* c * c' *: A is c *: (c' *: A). *)
Ltac scalars_of c env := lazymatch c with
  | (?a * ?b)%R => let env1 := scalars_of a env in scalars_of b env1
  | _ => add_word c env end.
Ltac scalars e env := lazymatch e with
  | @mulmx _ _ _ _ ?a ?b => let env1 := scalars a env in scalars b env1
  | @GRing.add _ ?a ?b => let env1 := scalars a env in scalars b env1
  | @trmx _ _ _ ?a => scalars a env
  | @GRing.scale _ _ ?c ?a => let env1 := add_word c env in scalars a env1
  | _ => env end.
Ltac reify cs e := lazymatch e with
  | @mulmx _ _ _ _ ?a ?b => let a' := reify cs a in let b' := reify cs b in constr:(Mul a' b')
  | @GRing.add _ ?a ?b => let a' := reify cs a in let b' := reify cs b in constr:(Add a' b')
  | @trmx _ _ _ ?a => let a' := reify cs a in constr:(Tr a')
  | @GRing.scale _ _ ?c ?a => let a' := reify cs a in let i := place c cs in constr:(Scale i a')
  | _ => constr:(Atom e)
  end.
Ltac by_computation := rewrite -?scalerA; lazymatch goal with |- @eq _ ?l ?r =>
  let T := match goal with
    | |- context [@GRing.scale _ _ ?c _] => type of c
    | |- context [@mulmx ?K _ _ _ _ _] => constr:(GRing.Ring.sort K)
    | |- context [@trmx ?K _ _ _] => K
    end in
  let cs0 := scalars l (@nil T) in let cs := scalars r cs0 in
  let l' := reify cs l in let r' := reify cs r in
  change (value cs l' = value cs r'); apply: by_words;
  cbv beta iota zeta delta [total tidy sorted_scalars insert Nat.leb normal times flatten foldr map cat app term_value word_value onto fst snd];
  repeat match goal with symmetric : @trmx _ _ _ ?A = ?A |- _ => rewrite ?symmetric; clear symmetric end;
  sums_agree
  end.
Ltac claim := intros; cbv beta iota delta [tensor tensor3 Id sum_acts after scaled_acts fst snd];
  rewrite ?(mul1mx, mulmx1, trmx1); first [by_computation | reflexivity].

