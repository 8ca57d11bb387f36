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
Definition over_acts (T : Type) (V : zmodType) (H : nat) (f : nat -> T -> V) : T -> V :=
  fun x => \sum_(0 <= i < H) f i x.
Notation "f \oplus g" := (sum_acts f g) (at level 50, left associativity).
Notation "f \after g" := (after f g) (at level 40, left associativity).
Notation "c \times f" := (scaled_acts c f) (at level 40).

(* Rotary positions turn row i by a matrix of its own, queries and keys alike: entry (i, j) of Q R K^T, with R between, is
   q_i R_i R_j^T k_j^T. *)
Definition row_of (R : ringType) n (i : nat) : 'M[R]_n := \matrix_(a, b) ((a == i :> nat) && (b == i :> nat))%:R.
Definition turned (R : ringType) n k (T : nat -> 'M[R]_k) (Q : 'M[R]_(n, k)) : 'M[R]_(n, k) :=
  \sum_(0 <= i < n) row_of R n i *m Q *m T i.
Definition between (R : ringType) m n k (T : nat -> 'M[R]_k) (Q : 'M[R]_(m, k)) (Kt : 'M[R]_(k, n)) : 'M[R]_(m, n) :=
  turned T Q *m (turned T Kt^T)^T.
Lemma row_turned (R : ringType) n k (T : nat -> 'M[R]_k) (Q : 'M[R]_(n, k)) (i : 'I_n) :
  row i (turned T Q) = row i Q *m T i.
Proof.
have picked (j : nat) : row i (row_of R n j *m Q) = (i == j :> nat)%:R *: row i Q.
  apply/rowP => c; rewrite !mxE (bigD1 i) //= big1 => [|l /negPf li]; first by rewrite mxE andbb addr0.
  rewrite mxE; case: (nat_of_ord i =P j) => [<- | _] /=; last by rewrite mul0r.
  by rewrite -[nat_of_ord l == nat_of_ord i]/(l == i) li mul0r.
rewrite /turned big_mkord raddf_sum (bigD1 i) //= big1 => [|l li].
  by rewrite row_mul picked eqxx scale1r addr0.
by rewrite row_mul picked eq_sym -[_ == _]/(l == i) (negPf li) scale0r mul0mx.
Qed.
Theorem betweenE (R : ringType) m n k (T : nat -> 'M[R]_k) (Q : 'M[R]_(m, k)) (Kt : 'M[R]_(k, n)) i j :
  between T Q Kt i j = (row i Q *m T i *m (row j Kt^T *m T j)^T) 0 0.
Proof. by rewrite -!row_turned /between mxE [RHS]mxE; apply: eq_bigr => c _; rewrite !mxE. Qed.

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

(* Sums over heads, one in another: what is added is known by the numbers of the heads, the innermost first. *)
Fixpoint nested (V : zmodType) (at_ : seq nat) (Hs : seq nat) (F : seq nat -> V) : V :=
  match Hs with nil => F at_ | cons H r => \sum_(0 <= i < H) nested (cons i at_) r F end.
Lemma nested_eq (V : zmodType) e1 e2 Hs (F G : seq nat -> V) :
  (forall js, size js = size Hs -> F (js ++ e1) = G (js ++ e2)) -> nested e1 Hs F = nested e2 Hs G.
Proof.
elim: Hs e1 e2 => [|H Hs IH] e1 e2 same /=; first exact: (same [::]).
by apply: eq_bigr => i _; apply: IH => js s_js; rewrite -!cat_rcons; apply: same; rewrite size_rcons s_js.
Qed.
Lemma nested_cat (V : zmodType) e Hs Hs' (F : seq nat -> V) :
  nested e (Hs ++ Hs') F = nested e Hs (fun e' => nested e' Hs' F).
Proof. by elim: Hs e => //= H Hs IH e; apply: eq_bigr => i _; apply: IH. Qed.
Lemma nested_map (U V : zmodType) (f : U -> V) e Hs F :
  f 0 = 0 -> {morph f : x y / x + y} -> f (nested e Hs F) = nested e Hs (fun e' => f (F e')).
Proof.
move=> f0 fD; elim: Hs e => //= H Hs IH e; rewrite (big_morph f fD f0); by apply: eq_bigr => i _; apply: IH.
Qed.

(* The place of a head's number among more numbers, of which j more stand before k others. *)
Fixpoint skip (k j v : nat) : nat :=
  match k, v with O, _ => Nat.add j v | S k', O => O | S k', S v' => S (skip k' j v') end.
Lemma nth_skip (js2 js1 e : seq nat) v :
  nth 0%N (js2 ++ js1 ++ e) (skip (size js2) (size js1) v) = nth 0%N (js2 ++ e) v.
Proof.
elim: js2 v => [|i js2 IH] [|v] //=; rewrite -?[Nat.add _ _]/(addn _ _) nth_cat ltnNge leq_addr /=;
  by rewrite addKn.
Qed.

Section Reflection.
Variable R : comRingType.
Variable cs : seq R.

Inductive mx : nat -> nat -> Type :=
| One n : mx n n
| Atom m n of 'M[R]_(m, n) : mx m n
| Letter m n of nat & (nat -> 'M[R]_(m, n)) : mx m n
| Mul m n p of mx m n & mx n p : mx m p
| Add m n of mx m n & mx m n : mx m n
| Tr m n of mx m n : mx n m
| Scale m n of nat & mx m n : mx m n
| Over m n of nat & mx m n : mx m n.

Fixpoint value m n (e : mx m n) (at_ : seq nat) : 'M[R]_(m, n) := match e with
  | One _ => 1%:M
  | Atom _ _ A => A
  | Letter _ _ v A => A (nth 0%N at_ v)
  | Mul _ _ _ a b => value a at_ *m value b at_
  | Add _ _ a b => value a at_ + value b at_
  | Tr _ _ a => (value a at_)^T
  | Scale _ _ c a => nth 0 cs c *: value a at_
  | Over _ _ H a => \sum_(0 <= i < H) value a (cons i at_) end.

(* A matrix, or that of a head. *)
Inductive letter (m n : nat) : Type := Const of 'M[R]_(m, n) | Of of nat & (nat -> 'M[R]_(m, n)).
Definition letter_value m n (at_ : seq nat) (l : letter m n) :=
  match l with Const A => A | Of v A => A (nth 0%N at_ v) end.
Definition renamed m n (f : nat -> nat) (l : letter m n) := match l with Const A => Const A | Of v A => Of (f v) A end.

Inductive word : nat -> nat -> Type :=
| Empty n : word n n
| Next m n p of letter m n & word n p : word m p.

Fixpoint app m n p (v : word m n) : word n p -> word m p :=
  match v in word m n return word n p -> word m p with
  | Empty _ => fun w => w
  | Next _ _ _ A v' => fun w => Next A (app v' w) end.
Fixpoint rename m n (f : nat -> nat) (w : word m n) : word m n :=
  match w with Empty n => Empty n | Next _ _ _ A w' => Next (renamed f A) (rename f w') end.
Fixpoint onto at_ q m n (acc : 'M[R]_(q, m)) (w : word m n) : 'M[R]_(q, n) :=
  match w in word m n return 'M[R]_(q, m) -> 'M[R]_(q, n) with
  | Empty _ => fun acc => acc
  | Next _ _ _ A w' => fun acc => onto at_ (acc *m letter_value at_ A) w' end acc.
Definition word_value at_ m n (w : word m n) : 'M[R]_(m, n) :=
  match w with Empty _ => 1%:M | Next _ _ _ A w' => onto at_ (letter_value at_ A) w' end.

Lemma ontoE at_ q m n (acc : 'M[R]_(q, m)) (w : word m n) : onto at_ acc w = acc *m word_value at_ w.
Proof.
elim: w q acc => [k | {}m k p A w' IH] q acc /=; first by rewrite mulmx1.
by rewrite !IH mulmxA.
Qed.
Lemma appE at_ m n p (v : word m n) (w : word n p) : word_value at_ (app v w) = word_value at_ v *m word_value at_ w.
Proof.
move: p w; elim: v => [k | m' k n' A v IH] p w /=; first by rewrite mul1mx.
by rewrite !ontoE IH mulmxA.
Qed.
Lemma renameE f at1 at2 m n (w : word m n) :
  (forall v, nth 0%N at1 (f v) = nth 0%N at2 v) -> word_value at1 (rename f w) = word_value at2 w.
Proof.
move=> same; elim: w => [k | m' k p A w IH] //=; rewrite !ontoE IH; congr (_ *m _).
by case: A => //= v A; rewrite same.
Qed.

(* A term: the sums over heads, its multipliers, its word. *)
Definition term m n := (seq nat * (seq nat * word m n))%type.
Definition scaled at_ m n (t : seq nat * word m n) : 'M[R]_(m, n) :=
  foldr (fun c X => nth 0 cs c *: X) (word_value at_ t.2) t.1.
Definition term_value at_ m n (t : term m n) : 'M[R]_(m, n) := nested at_ t.1 (fun at' => scaled at' t.2).
Fixpoint total at_ m n (s : seq (term m n)) : 'M[R]_(m, n) :=
  match s with nil => 0 | cons t nil => term_value at_ t | cons t r => term_value at_ t + total at_ r end.
Lemma totalE at_ m n (s : seq (term m n)) : total at_ s = \sum_(t <- s) term_value at_ t.
Proof. by elim: s => [|t [|t' s] IH]; rewrite ?big_nil ?big_seq1 // big_cons -IH. Qed.

Definition joined m n p (a : term m n) (b : term n p) : term m p :=
  (a.1 ++ b.1, (a.2.1 ++ b.2.1, app (rename (skip 0 (size b.1)) a.2.2) (rename (skip (size b.1) (size a.1)) b.2.2))).
Definition times m n p (s : seq (term m n)) (t : seq (term n p)) : seq (term m p) :=
  flatten (map (fun a => map (fun b => joined a b) t) s).
Definition more_scale c m n (t : term m n) : term m n := (t.1, (c :: t.2.1, t.2.2)).
Definition more_sum H m n (t : term m n) : term m n := (H :: t.1, t.2).
(* The terms of an expression, and of its transpose, at once: transposes go to the letters. *)
Fixpoint normal m n (e : mx m n) : seq (term m n) * seq (term n m) := match e with
  | One n => ([:: ([::], ([::], Empty n))], [:: ([::], ([::], Empty n))])
  | Atom _ n A => ([:: ([::], ([::], Next (Const A) (Empty n)))], [:: ([::], ([::], Next (Const A^T) (Empty _)))])
  | Letter _ n v A =>
      ([:: ([::], ([::], Next (Of v A) (Empty n)))], [:: ([::], ([::], Next (Of v (fun i => (A i)^T)) (Empty _)))])
  | Mul _ _ _ a b => let a' := normal a in let b' := normal b in (times a'.1 b'.1, times b'.2 a'.2)
  | Add _ _ a b => let a' := normal a in let b' := normal b in (a'.1 ++ b'.1, a'.2 ++ b'.2)
  | Tr _ _ a => let a' := normal a in (a'.2, a'.1)
  | Scale _ _ c a => let a' := normal a in (map (@more_scale c _ _) a'.1, map (@more_scale c _ _) a'.2)
  | Over _ _ H a => let a' := normal a in (map (@more_sum H _ _) a'.1, map (@more_sum H _ _) a'.2) end.

Lemma scaled_joined at1 at2 at_ m n p (s t : seq nat) (v : word m n) (w : word n p) f g :
  (forall i, nth 0%N at_ (f i) = nth 0%N at1 i) -> (forall i, nth 0%N at_ (g i) = nth 0%N at2 i) ->
  scaled at_ (s ++ t, app (rename f v) (rename g w)) = scaled at1 (s, v) *m scaled at2 (t, w).
Proof.
move=> fP gP; rewrite /scaled /= foldr_cat.
elim: s => [|c s IH] /=; last by rewrite IH scaleMl.
by elim: t => [|c t IH] /=; [rewrite appE (renameE _ fP) (renameE _ gP) | rewrite IH scaleMr].
Qed.
Lemma joinedE at_ m n p (a : term m n) (b : term n p) :
  term_value at_ (joined a b) = term_value at_ a *m term_value at_ b.
Proof.
case: a b => [Hs [s v]] [Hs' [t w]]; rewrite /term_value /= nested_cat.
rewrite (nested_map (f := fun X => X *m nested at_ Hs' _)) ?mul0mx //; last by move=> X Y; rewrite mulmxDl.
apply: nested_eq => js1 s1; rewrite (nested_map (f := fun X => _ *m X)) ?mulmx0 //; last by move=> X Y; rewrite mulmxDr.
apply: nested_eq => js2 s2; rewrite -s1 -s2; apply: scaled_joined => i; last exact: nth_skip.
exact: (nth_skip [::] js2 (js1 ++ at_) i).
Qed.
Lemma timesE at_ m n p (s : seq (term m n)) (t : seq (term n p)) : total at_ (times s t) = total at_ s *m total at_ t.
Proof.
rewrite !totalE /times big_flatten big_map mulmx_suml; apply: eq_bigr => a _.
by rewrite big_map mulmx_sumr; apply: eq_bigr => b _; rewrite joinedE.
Qed.
Lemma more_scaleE at_ m n c (s : seq (term m n)) : total at_ (map (@more_scale c m n) s) = nth 0 cs c *: total at_ s.
Proof.
rewrite !totalE big_map scaler_sumr; apply: eq_bigr => t _; rewrite /term_value.
by rewrite (nested_map (f := fun X => _ *: X)) ?scaler0 // => X Y; rewrite scalerDr.
Qed.
Lemma more_sumE at_ m n H (s : seq (term m n)) :
  total at_ (map (@more_sum H m n) s) = \sum_(0 <= i < H) total (i :: at_) s.
Proof.
rewrite totalE big_map; under [RHS]eq_bigr do rewrite totalE; by rewrite exchange_big.
Qed.

Theorem normalE m n (e : mx m n) at_ : total at_ (normal e).1 = value e at_ /\ total at_ (normal e).2 = (value e at_)^T.
Proof.
elim: e at_ => /= {m n}.
- by move=> n at_; rewrite trmx1.
- by [].
- by [].
- by move=> m n p a IHa b IHb at_; case: (IHa at_) (IHb at_) => a1 a2 [b1 b2]; rewrite !timesE a1 a2 b1 b2 trmx_mul.
- move=> m n a IHa b IHb at_; case: (IHa at_) (IHb at_) => a1 a2 [b1 b2].
  by rewrite totalE big_cat -!totalE a1 b1 [X in _ /\ X = _]totalE big_cat -!totalE a2 b2 trD.
- by move=> m n a IHa at_; case: (IHa at_) => a1 a2; rewrite a1 a2 trmxK.
- by move=> m n c a IHa at_; case: (IHa at_) => a1 a2; rewrite !more_scaleE a1 a2 scaleT.
- move=> m n H a IHa at_; rewrite !more_sumE (big_morph _ (@trD _ _ _) (trmx0 _ _ _)).
  by split; apply: eq_bigr => i _; case: (IHa (i :: at_)).
Qed.

Lemma scaled_sorted at_ m n s (w : word m n) : scaled at_ (sorted_scalars s, w) = scaled at_ (s, w).
Proof.
have product r : scaled at_ (r, w) = (\prod_(c <- r) nth 0 cs c) *: word_value at_ w.
  by rewrite /scaled /=; elim: r => [|c r IH] /=; rewrite ?big_nil ?scale1r // IH big_cons scalerA.
by rewrite !product (perm_big _ (perm_sorted s)).
Qed.
(* Sums over heads may stand in any order: they are put in that of the first letters that have their numbers. *)
Fixpoint earlier (a b : nat) m n (w : word m n) : bool := match w with
  | Empty _ => false
  | Next _ _ _ (Of v _) w' => if Nat.eqb v a then true else if Nat.eqb v b then false else earlier a b w'
  | Next _ _ _ _ w' => earlier a b w' end.
Definition exchanged (k v : nat) : nat := if Nat.eqb v k then S k else if Nat.eqb v (S k) then k else v.
Fixpoint pass m n (H : nat) (rest : seq nat) (w : word m n) : seq nat * word m n := match rest with
  | nil => (cons H nil, w)
  | cons H' r =>
      if earlier (size r) (S (size r)) w
      then let p := pass H r (rename (exchanged (size r)) w) in (cons H' p.1, p.2)
      else let p := pass H' r w in (cons H p.1, p.2) end.
Fixpoint passes m n (k : nat) (Hs : seq nat) (w : word m n) : seq nat * word m n := match k, Hs with
  | S k', cons H r => let p := pass H r w in passes k' p.1 p.2
  | _, _ => (Hs, w) end.

Lemma nth_exchanged (js e : seq nat) i i' v :
  nth 0%N (js ++ i :: i' :: e) (exchanged (size js) v) = nth 0%N (js ++ i' :: i :: e) v.
Proof.
rewrite /exchanged; case: (PeanoNat.Nat.eqb_spec v (size js)) => [-> | v0].
  by rewrite !nth_cat ltnn ltnNge leqnSn subSnn subnn.
case: (PeanoNat.Nat.eqb_spec v (S (size js))) => [-> | v1].
  by rewrite !nth_cat ltnn ltnNge leqnSn subSnn subnn.
rewrite !nth_cat; case: ltnP => // le; move/eqP: v0; move/eqP: v1 => v1 v0.
have lt : (size js < v)%N by rewrite ltn_neqAle eq_sym v0.
have : (S (size js) < v)%N by rewrite ltn_neqAle eq_sym v1.
by rewrite -subn_gt0 subnS; case: (v - size js)%N => [|[|u]].
Qed.
Lemma scaled_renamed f at1 at2 m n s (w : word m n) :
  (forall v, nth 0%N at1 (f v) = nth 0%N at2 v) -> scaled at1 (s, rename f w) = scaled at2 (s, w).
Proof. by move=> same; rewrite /scaled /= (renameE _ same). Qed.
Lemma passE m n H rest (w : word m n) s at_ :
  nested at_ (pass H rest w).1 (fun at' => scaled at' (s, (pass H rest w).2))
  = nested at_ (H :: rest) (fun at' => scaled at' (s, w)).
Proof.
elim: rest H w at_ => [|H' r IH] H w at_ //=; case: ifP => _ /=; last by apply: eq_bigr => i _; apply: IH.
rewrite [RHS]exchange_big /=; apply: eq_bigr => i' _; rewrite IH /=; apply: eq_bigr => i _.
by apply: nested_eq => js sj; rewrite -sj; apply: scaled_renamed => v; apply: nth_exchanged.
Qed.
Lemma passesE m n k Hs (w : word m n) s at_ :
  nested at_ (passes k Hs w).1 (fun at' => scaled at' (s, (passes k Hs w).2))
  = nested at_ Hs (fun at' => scaled at' (s, w)).
Proof. by elim: k Hs w => [|k IH] [|H r] w //=; rewrite IH passE. Qed.

Definition tidied m n (t : term m n) : term m n :=
  let p := passes (size t.1) t.1 t.2.2 in (p.1, (sorted_scalars t.2.1, p.2)).
Definition tidy m n (s : seq (term m n)) : seq (term m n) := map (@tidied m n) s.
Lemma tidyE at_ m n (s : seq (term m n)) : total at_ (tidy s) = total at_ s.
Proof.
rewrite !totalE big_map; apply: eq_bigr => -[Hs [r w]] _; rewrite /term_value /= -[RHS](passesE (size Hs)).
by apply: nested_eq => js _; rewrite scaled_sorted.
Qed.

Lemma by_words m n (e f : mx m n) :
  total [::] (tidy (normal e).1) = total [::] (tidy (normal f).1) -> value e [::] = value f [::].
Proof. by rewrite !tidyE; case: (normalE e [::]) => -> _; case: (normalE f [::]) => -> _. Qed.
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
  | @bigop _ _ _ _ (fun i => @BigBody _ _ i _ true (@?F i)) =>
      let h := fresh "h" in
      let r := constr:(fun h => ltac:(let b := eval cbv beta in (F h) in let s := scalars b env in exact s)) in
      lazymatch r with (fun _ => ?found) => constr:(found) end
  | _ => env end.
(* A letter that depends on the number of a head, among those that the sums around it run over. *)
Ltac letter_of e heads k := lazymatch heads with
  | nil => constr:(Atom e)
  | cons ?i ?r => match e with
    | context [i] => lazymatch eval pattern i in e with ?A i => constr:(Letter k A) end
    | _ => letter_of e r (S k) end
  end.
Ltac reify cs heads e := lazymatch e with
  | @scalar_mx (GRing.ComRing.ringType ?K) ?n (GRing.one _) => constr:(@One K n)
  | @mulmx _ _ _ _ ?a ?b => let a' := reify cs heads a in let b' := reify cs heads b in constr:(Mul a' b')
  | @GRing.add _ ?a ?b => let a' := reify cs heads a in let b' := reify cs heads b in constr:(Add a' b')
  | @trmx _ _ _ ?a => let a' := reify cs heads a in constr:(Tr a')
  | @GRing.scale _ _ ?c ?a => let a' := reify cs heads a in let i := place c cs in constr:(Scale i a')
  | @bigop _ _ _ (index_iota 0 ?H) (fun i => @BigBody _ _ i _ true (@?F i)) =>
      let h := fresh "h" in
      let r := constr:(fun h : nat => ltac:(
        let b := eval cbv beta in (F h) in let s := reify cs (@cons nat h heads) b in exact s)) in
      lazymatch r with (fun _ => ?body) => constr:(Over H body) end
  | _ => letter_of e heads 0%N
  end.
Ltac by_computation := rewrite -?scalerA; lazymatch goal with |- @eq _ ?l ?r =>
  let T := match goal with
    | |- context [@GRing.scale _ _ ?c _] => type of c
    | |- context [@mulmx ?K _ _ _ _ _] => constr:(GRing.Ring.sort K)
    | |- context [@trmx ?K _ _ _] => K
    end in
  let cs0 := scalars l (@nil T) in let cs := scalars r cs0 in
  let l' := reify cs (@nil nat) l in let r' := reify cs (@nil nat) r in
  change (value cs l' [::] = value cs r' [::]); apply: by_words;
  cbv beta iota zeta delta
    [total tidy tidied passes pass earlier exchanged Nat.eqb sorted_scalars insert Nat.leb normal times joined more_scale
     more_sum flatten foldr map cat size app skip Nat.add rename renamed term_value nested scaled word_value onto
     letter_value nth fst snd];
  repeat match goal with symmetric : @trmx _ _ _ ?A = ?A |- _ => rewrite ?symmetric; clear symmetric end;
  sums_agree
  end.
(* Numbers of terms: what is listed is counted, a list for each head as often as there are heads. *)
Ltac numbers := first [reflexivity | cbn [size elementary]; rewrite ?sum_nat_const_nat ?subn0; ring].
Ltac claim := intros; cbv beta iota delta [tensor tensor3 between turned Id sum_acts over_acts after scaled_acts fst snd];
  lazymatch goal with
  | |- @eq nat _ _ => numbers
  | _ => rewrite ?(mul1mx, mulmx1, trmx1); first [by_computation | reflexivity]
  end.

